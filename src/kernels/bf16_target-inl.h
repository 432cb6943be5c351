// Makes the AVX3 pass of a file one of AVX3_BF16: Highway's AVX3, and vdpbf16ps and vpdpbusd beside it, which it does not have. To be included
// in each pass after highway.h and all else of Highway's, before the room's own headers; the passes of other targets stay as they are.
//
// The room's headers are then compiled in a namespace of their own, with the attributes of this target. Highway's operations keep
// those of AVX3, a subset, and so are inlined.
#undef REGARD_BF16_DOT
#if REGARD_HAVE_BF16_TARGET && HWY_TARGET == HWY_AVX3
#define REGARD_BF16_DOT 1
#undef HWY_NAMESPACE
#define HWY_NAMESPACE N_AVX3_BF16
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16,avx512vnni"
namespace hwy::HWY_NAMESPACE {
using namespace hwy::N_AVX3;
}
#else
#define REGARD_BF16_DOT 0
#endif
