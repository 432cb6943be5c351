#include "measure/bench_json.h"

#include <nlohmann/json.hpp>

namespace regard::measure {
namespace {

using Json = nlohmann::ordered_json;

Json RowObject(const BenchRow& row) {
  const bool timed = row.verification.passed();
  const auto when_timed = [timed](const Json& value) { return timed ? value : Json(nullptr); };
  return {{"case", row.name},
          {"dtype", Name(row.dtype)},
          {"options", row.options},
          {"target", row.target},
          {"threads", row.threads},
          {"median_s", when_timed(row.median_seconds)},
          {"rate", when_timed(row.rate)},
          {"unit", row.unit.empty() ? Json(nullptr) : Json(row.unit)},
          {"percent_of_limit", when_timed(row.percent_of_limit)},
          {"clock", row.threads == 1 ? "cpu" : "wall"},
          {"quartiles_s", when_timed(Json::array({row.quartiles().low, row.quartiles().high}))},
          {"wall_median_s", when_timed(row.timing.wall.median)},
          {"samples", row.timing.samples},
          {"baseline", row.baseline.empty() ? Json(nullptr) : Json(row.baseline)},
          {"ratio_to_baseline", row.ratio ? Json(*row.ratio) : Json(nullptr)},
          {"verified_rows", row.verification.rows},
          {"verified", row.verification.passed()},
          {"fault", !timed              ? Json(row.verification.fault)
                    : row.fault.empty() ? Json(nullptr)
                                        : Json(row.fault)}};
}

}  // namespace

std::string ToJson(const Machine& machine, const Limits& limits, const std::vector<BenchRow>& rows) {
  Json object;
  object["machine"] = {{"cpu", machine.cpu},
                       {"logical_cpus", machine.logical_cpus},
                       {"huge_pages", machine.huge_pages},
                       {"regard", machine.version},
                       {"compiler", machine.compiler},
                       {"blas", machine.blas},
                       {"target", limits.target},
                       {"lanes", limits.lanes},
                       {"clock_ghz", limits.clock * 1e-9},
                       {"peak_gflops", limits.peak_flops * 1e-9},
                       {"bf16_peak_gflops", limits.bf16_peak_flops > 0 ? Json(limits.bf16_peak_flops * 1e-9) : Json(nullptr)},
                       {"fmas_per_cycle", limits.FmasPerCycle()},
                       {"read_gbs", limits.read_bandwidth * 1e-9}};
  object["rows"] = Json::array();
  for (const BenchRow& row : rows) object["rows"].push_back(RowObject(row));
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace regard::measure
