#include "cli/foreign_flags.h"

#include <algorithm>
#include <iterator>

#include "io/problem_keys.h"

namespace regard::cli {
namespace {

constexpr ForeignFlag kForeignFlags[] = {
    {"--is-causal", "--causal, and --q-offset top-left or bottom-right where q_len differs from kv_len"},
    {"--no-causal", "--causal=false"},
    {"--causal-mask", "--causal"},
    {"--use-causal-mask", "--causal"},
    {"--softcap", "--soft-cap X (the same meaning; 0 is off)"},
    {"--logits-soft-cap", "--soft-cap X (the same meaning; 0 is off)"},
    {"--attn-logit-softcapping", "--soft-cap X (the same meaning; 0 is off)"},
    {"--softmax-scale", "--scale X (the multiplier on q·k)"},
    {"--sm-scale", "--scale X (the multiplier on q·k)"},
    {"--scaling", "--scale X (the multiplier on q·k)"},
    {"--sliding-window", "--window-left W−1", io::kOnSlidingWindow},
    {"--window-size", "--window-left L --window-right R", io::kOnWindowPair},
    {"--left-window-size", "--window-left L", io::kOnWindowPair},
    {"--right-window-size", "--window-right R", io::kOnWindowPair},
    {"--local-window-size", "--window-left L --window-right R", io::kOnWindowPair},
    {"--attn-mask", "a key in the file, or attn_mask=mask.npy: bool is a mask (true = may attend), float is added to the scores"},
    {"--attention-mask", "a key in the file", io::kOnPaddingMask},
    {"--mask", "a key in the file, or mask=mask.npy: bool, true = may attend"},
    {"--bias", "a key in the file, or bias=bias.npy: float, added to the scores"},
    {"--attn-bias", "a key in the file, or bias=bias.npy: float, added to the scores"},
    {"--key-padding-mask", "a key in the file", io::kOnPaddingMask},
    {"--alibi-slopes", "a key in the file, or alibi_slopes=slopes.npy"},
    {"--sinks", "a key in the file, or sinks=sinks.npy"},
    {"--enable-gqa", "nothing: fewer key heads than query heads are always grouped"},
    {"--dropout-p", "nothing: the command computes attention as in evaluation, without dropout"},
    {"--dropout", "nothing: the command computes attention as in evaluation, without dropout"},
    {"--heads", "--num-heads N (to split heads), or --head LIST (to show some)"},
    {"--n-head", "--num-heads N"},
    {"--n-heads", "--num-heads N"},
    {"--num-attention-heads", "--num-heads N"},
    {"--q-num-heads", "--num-heads N"},
    {"--kv-heads", "--num-kv-heads N"},
    {"--n-kv-heads", "--num-kv-heads N"},
    {"--kv-num-heads", "--num-kv-heads N"},
    {"--num-key-value-heads", "--num-kv-heads N"},
    {"--past-len", "--q-offset N (the keys that precede query 0)"},
    {"--q-start", "--q-offset N (the keys that precede query 0)"},
    {"--axis", "--dim N"},
    {"--backend", "--path reference|staged|fused"},
    {"--num-threads", "--threads N"},
    {"--jobs", "--threads N"},
    {"--query", "q=query.npy, or --row LIST for the queries to show"},
    {"--key", "k=key.npy"},
    {"--value", "v=value.npy"},
    {"--output", "-o FILE"},
    {"--out", "-o FILE"},
};

}  // namespace

const ForeignFlag* FindForeignFlag(std::string_view name) noexcept {
  const ForeignFlag* flag = std::ranges::find(kForeignFlags, name, &ForeignFlag::name);
  return flag == std::end(kForeignFlags) ? nullptr : flag;
}

}  // namespace regard::cli
