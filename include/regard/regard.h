// Everything that `regard::regard` offers. The headers below are the manual; start with attention.h.
#pragma once

#include "regard/attention.h"
#include "regard/backward.h"
#include "regard/error.h"
#include "regard/info.h"
#include "regard/kv_cache.h"
#include "regard/nn.h"
#include "regard/projections.h"
#include "regard/stages.h"
#include "regard/summary.h"
#include "regard/tensor.h"
#include "regard/version.h"
