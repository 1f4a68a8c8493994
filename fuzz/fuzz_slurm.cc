// Takes any bytes as what Slurm's commands print, or slurmrestd answers: lists of nodes and jobs,
// one after the other, and complaints. Everything must be read or refused. A listing must count no
// GPU that is not there, and have a living job of Slurm for every share that is not gone.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/engine/slurm_json.h"
#include "rubato/engine/slurm_view.h"

namespace {

using namespace rubato::fuzz;
using State = ManagedShare::State;

void check_listing(const Listing& listing, const SlurmView& view) {
  for (const auto& node : listing.nodes) {
    CHECK(node.gpus >= 0 && node.gpus <= kMaxGpusPerNode);
    CHECK(node.others >= 0 && node.others <= node.gpus);
    CHECK((node.state == NodeState::up) == node.why.empty());
  }
  for (const auto& share : listing.shares) {
    CHECK(share.name.starts_with("r-"));
    CHECK(view.native(share.name).has_value());
    if (share.state != State::gone) CHECK(!view.living(share.name).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  SlurmView view;
  Time now{};
  std::int64_t number = 0;
  // Lists are separated by a zero byte: nodes and jobs of each look are one text.
  for (const auto look : split(text, '\0')) {
    const bool rest = look.starts_with('{');
    const auto nodes = rest ? read_slurm_nodes(look) : parse_slurm_nodes(look);
    const auto jobs = rest ? read_slurm_jobs(look, "r-", WallTime(std::chrono::seconds(1'000)))
                           : parse_slurm_jobs(look, "X|", "r-");
    (void)submitted_slurm_job(look);
    for (const auto& partition : parse_slurm_partitions(look)) CHECK(!partition.name.empty());
    (void)read_slurm_partitions(look);
    (void)read_submitted_slurm_job(look);
    CHECK(read_slurm_errors(look).size() < 2000);
    CHECK(slurm_complaint(look).size() < 2000);
    if (!nodes || !jobs) continue;
    now += std::chrono::seconds(1);
    const Listing listing = view.update(++number, *nodes, *jobs, {{"r-a", "ann"}}, now);
    check_listing(listing, view);
  }
  return 0;
}
