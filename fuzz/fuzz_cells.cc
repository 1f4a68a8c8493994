// Takes any bytes as a file of tenants' cells, and as places of cells. The result must be an error,
// or quotas whose cells all have a place of their own, and places that are read as they are
// written.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/cells/quotas.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const Cluster cluster = parse_cluster("2x8,1x6,1x64").value();
  if (const auto json = parse_json(text, "input"); json) {
    if (const auto places = places_of(*json); places) static_cast<void>(to_json(*places));
  }
  const auto quotas = parse_quotas(text, "input", cluster);
  if (!quotas) return 0;
  int gpus = 0;
  for (const auto& of_tenant : find_places(*quotas, cluster, {}, {})) {
    for (const CellPlace& place : of_tenant) {
      CHECK(std::popcount(place.gpus) == place.cell.gpus);
      gpus += place.cell.gpus;
    }
    CHECK(places_of(to_json(of_tenant)).value() == of_tenant);
  }
  CHECK(gpus <= cluster.installed());
  for (const TenantCells& quota : quotas->all())
    CHECK(parse_cells(text_of(quota.cells, cluster), cluster).value() == quota.cells);
  return 0;
}
