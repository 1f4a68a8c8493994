#include "rubato/sim/link_order.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>

#include "rubato/base/text.h"

namespace rubato::sim {
namespace {

double demand_on(const LinkDemand& stage, std::size_t link) {
  const auto found = stage.find(link);
  return found == stage.end() ? 0 : found->second;
}

// The link with the most to send; nullopt if nobody sends.
std::optional<std::size_t> busiest(const std::map<std::size_t, double>& totals) {
  std::optional<std::size_t> link;
  double most = 0;
  for (const auto& [candidate, total] : totals) {
    if (total <= most) continue;
    most = total;
    link = candidate;
  }
  return link;
}

}  // namespace

Result<LinkOrder> parse_link_order(std::string_view name) {
  if (name == "fair") return LinkOrder::fair;
  if (name == "intensity") return LinkOrder::intensity;
  if (name == "grouper") return LinkOrder::grouper;
  return Error{
      fmt::format("--link-order {}: must be fair, intensity or grouper", base::quoted(name))};
}

std::vector<int> order_of_stages(std::span<const LinkDemand> stages) {
  std::vector<int> place(stages.size(), 0);
  std::vector<double> weight(stages.size(), 1);
  std::vector<bool> placed(stages.size(), false);
  std::map<std::size_t, double> totals;
  for (const LinkDemand& stage : stages) {
    for (const auto& [link, seconds] : stage) totals[link] += seconds;
  }
  for (std::size_t left = stages.size(); left > 0; --left) {
    const auto link = busiest(totals);
    std::optional<std::size_t> last;
    double least = 0;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (placed[i]) continue;
      const double demand = link ? demand_on(stages[i], *link) : 0;
      if (link && !(demand > 0)) continue;
      const double ratio = link ? weight[i] / demand : 0;
      if (last && ratio >= least) continue;
      least = ratio;
      last = i;
    }
    if (!last) {  // rounding has left a little on a link that nobody uses any more
      totals.erase(*link);
      ++left;
      continue;
    }
    place[*last] = static_cast<int>(left) - 1;
    placed[*last] = true;
    for (std::size_t i = 0; i < stages.size() && link; ++i) {
      if (!placed[i]) weight[i] = std::max(0.0, weight[i] - least * demand_on(stages[i], *link));
    }
    for (const auto& [used, seconds] : stages[*last]) totals[used] -= seconds;
  }
  return place;
}

std::vector<int> order_by_intensity(std::span<const double> intensities) {
  std::vector<double> values(intensities.begin(), intensities.end());
  std::sort(values.begin(), values.end(), std::greater<>());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<int> place;
  for (const double value : intensities) {
    const auto at = std::lower_bound(values.begin(), values.end(), value, std::greater<>());
    place.push_back(static_cast<int>(at - values.begin()));
  }
  return place;
}

}  // namespace rubato::sim
