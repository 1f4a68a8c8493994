#include "rubato/cells/quotas.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "rubato/base/text.h"

namespace rubato::cells {
namespace {

constexpr int kMostCells = 100'000;
constexpr std::size_t kLongestName = 255;

// The size of the next smaller level of a node; 0 below a single GPU.
int below(int size) { return size % 2 == 0 ? size / 2 : size > 1 ? 1 : 0; }

bool is_level(int size, int node_gpus) {
  int level = node_gpus;
  while (level > size) level = below(level);
  return level == size && size > 0;
}

std::uint64_t block(int first, int gpus) {
  const std::uint64_t ones =
      gpus == kMaxGpusPerNode ? ~std::uint64_t{0} : (std::uint64_t{1} << gpus) - 1;
  return ones << first;
}

NodeId node_at(std::size_t i) { return NodeId(static_cast<NodeId::rep>(i)); }

// The order of a tenant's cells: the largest first.
bool precedes(const Cell& a, const Cell& b) {
  return std::pair(-a.gpus, a.type) < std::pair(-b.gpus, b.type);
}

// Gives out aligned blocks of the GPUs that are left on each node.
class Blocks {
 public:
  Blocks(const Cluster& cluster, std::vector<std::uint64_t> left)
      : cluster_(cluster), left_(std::move(left)) {}

  void take(const CellPlace& place) {
    if (place.gpus != 0) left_[place.node.index()] &= ~place.gpus;
  }

  // On the node with the fewest GPUs left, so that whole nodes stay whole.
  bool find(CellPlace& place) {
    std::optional<std::tuple<int, std::size_t, int>> best;
    for (std::size_t i = 0; i < left_.size(); ++i) {
      const Node& node = cluster_.nodes()[i];
      const int there = std::popcount(left_[i]);
      if (node.type != place.cell.type || there < place.cell.gpus) continue;
      if (best && std::get<0>(*best) <= there) continue;
      if (const auto first = first_on(left_[i], node.gpus, place.cell.gpus))
        best = {there, i, *first};
    }
    if (!best) return false;
    place.node = node_at(std::get<1>(*best));
    place.gpus = block(std::get<2>(*best), place.cell.gpus);
    take(place);
    return true;
  }

 private:
  // The block that shares its parent with the fewest GPUs that are left.
  [[nodiscard]] static std::optional<int> first_on(std::uint64_t left, int node_gpus, int gpus) {
    if (!is_level(gpus, node_gpus)) return std::nullopt;
    std::optional<std::pair<std::int64_t, int>> best;
    for (int first = 0; first + gpus <= node_gpus; first += gpus) {
      if ((block(first, gpus) & ~left) != 0) continue;
      std::int64_t loss = 0;  // a digit below 65 for each of at most six levels
      for (int level = node_gpus; level > gpus; level = below(level))
        loss = loss * 65 + std::popcount(left & block(first / level * level, level));
      if (!best || loss < best->first) best = {loss, first};
    }
    if (!best) return std::nullopt;
    return best->second;
  }

  const Cluster& cluster_;
  std::vector<std::uint64_t> left_;  // by node
};

std::vector<std::uint64_t> installed_gpus(const Cluster& cluster) {
  std::vector<std::uint64_t> gpus;
  for (const Node& node : cluster.nodes()) gpus.push_back(node.all());
  return gpus;
}

// The GPUs that can be used and are not kept.
std::vector<std::uint64_t> usable_gpus(const Cluster& cluster,
                                       const std::vector<std::uint64_t>& kept) {
  std::vector<std::uint64_t> gpus;
  for (const Node& node : cluster.nodes())
    gpus.push_back(node.usable() & ~(gpus.size() < kept.size() ? kept[gpus.size()] : 0));
  return gpus;
}

// The largest first, because they are the hardest to place.
std::vector<CellPlace*> by_size(Places& places) {
  std::vector<CellPlace*> all;
  for (auto& of_tenant : places) {
    for (CellPlace& place : of_tenant) all.push_back(&place);
  }
  std::stable_sort(all.begin(), all.end(), [](const CellPlace* a, const CellPlace* b) {
    return a->cell.gpus > b->cell.gpus;
  });
  return all;
}

Places without_places(const Quotas& quotas) {
  Places places;
  for (const TenantCells& quota : quotas.all()) {
    auto& mine = places.emplace_back();
    for (const Cell& cell : quota.cells) mine.push_back({cell, NodeId(), 0});
  }
  return places;
}

// Gives every cell without a place one of the GPUs that are left. Answers whether all have one.
bool fill(Places& places, const Cluster& cluster, const std::vector<std::uint64_t>& left) {
  Blocks blocks(cluster, left);
  const auto all = by_size(places);
  for (const CellPlace* place : all) blocks.take(*place);
  bool complete = true;
  for (CellPlace* place : all) {
    if (place->gpus == 0) complete = blocks.find(*place) && complete;
  }
  return complete;
}

// Puts cells of one tenant without a place where a cell of the same kind was, as far as these GPUs
// are among `gpus`, and takes them from there. Both lists have the largest cells first.
void stay(std::vector<CellPlace>& places, const std::vector<CellPlace>& before,
          std::vector<std::uint64_t>& gpus) {
  const auto usable = [&](const CellPlace& old) {
    return old.gpus != 0 && old.node.index() < gpus.size() &&
           (old.gpus & ~gpus[old.node.index()]) == 0;
  };
  auto old = before.begin();
  for (CellPlace& place : places) {
    if (place.gpus != 0) continue;
    while (old != before.end() &&
           (precedes(old->cell, place.cell) || (old->cell == place.cell && !usable(*old))))
      ++old;
    if (old == before.end()) return;
    if (!(old->cell == place.cell)) continue;
    place = *old++;
    gpus[place.node.index()] &= ~place.gpus;
  }
}

void stay(Places& places, const Places& before, std::vector<std::uint64_t> gpus) {
  for (const CellPlace* place : by_size(places)) {
    if (place->gpus != 0) gpus[place->node.index()] &= ~place->gpus;
  }
  for (std::size_t t = 0; t < std::min(before.size(), places.size()); ++t)
    stay(places[t], before[t], gpus);
}

Error bad_cells(std::string_view text, std::string_view why) {
  return Error{fmt::format("cells {}: {}; write COUNTxSIZE[:TYPE][,...], for example 2xnode,1x4",
                           base::quoted(text), why)};
}

struct CellsText {
  int count = 0;
  Cell cell;
};

Result<GpuType> parse_type(std::string_view whole, std::optional<std::string_view> name,
                           const Cluster& cluster) {
  if (!name && cluster.types() == 1) return GpuType();
  std::string known;
  for (int t = 0; t < cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    if (name && cluster.type_name(type) == *name) return type;
    known += (known.empty() ? "" : ", ") + cluster.type_name(type);
  }
  if (!name) return bad_cells(whole, "name the type of GPUs, which is one of " + known);
  return bad_cells(whole, fmt::format("{} is not a type of GPUs of this cluster, which has {}",
                                      base::quoted(*name), known));
}

Result<int> parse_size(std::string_view whole, std::string_view size, GpuType type,
                       const Cluster& cluster) {
  if (size == "node") return cluster.node_size(type);
  const auto number = parse_integer(size);
  std::set<int, std::greater<>> levels;
  for (const Node& node : cluster.nodes()) {
    if (node.type != type) continue;
    for (int level = node.gpus; level > 0; level = below(level)) levels.insert(level);
  }
  if (number && levels.contains(static_cast<int>(std::clamp<long long>(*number, 0, 1000))))
    return static_cast<int>(*number);
  std::string known = "node";
  for (const int level : levels) known += fmt::format(", {}", level);
  return bad_cells(whole, fmt::format("{} is not the size of a cell, which is one of {}",
                                      base::quoted(size), known));
}

Result<CellsText> parse_item(std::string_view whole, std::string_view item,
                             const Cluster& cluster) {
  const auto colon = item.find(':');
  const auto amount = item.substr(0, colon);
  const auto cross = amount.find('x');
  if (cross == std::string_view::npos)
    return bad_cells(whole, fmt::format("{} has no \"x\"", base::quoted(item)));
  const auto count = parse_integer(amount.substr(0, cross));
  if (!count || *count < 1 || *count > kMostCells) {
    return bad_cells(whole, fmt::format("{} is not a whole number from 1 to {}",
                                        base::quoted(amount.substr(0, cross)), kMostCells));
  }
  std::optional<std::string_view> name;
  if (colon != std::string_view::npos) name = item.substr(colon + 1);
  const auto type = parse_type(whole, name, cluster);
  if (!type) return type.error();
  const auto size = parse_size(whole, amount.substr(cross + 1), *type, cluster);
  if (!size) return size.error();
  return CellsText{static_cast<int>(*count), {*type, *size}};
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c <= ' ' || c == ',' || c == '#'; });
}

}  // namespace

int TenantCells::gpus() const {
  return std::accumulate(cells.begin(), cells.end(), 0,
                         [](int sum, const Cell& cell) { return sum + cell.gpus; });
}

const TenantCells* Quotas::find(std::string_view tenant) const {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const TenantCells& quota) { return quota.tenant == tenant; });
  return found == all_.end() ? nullptr : &*found;
}

std::optional<std::size_t> Quotas::tenant_of(const std::string& user) const {
  const auto found = tenant_of_.find(user);
  return found == tenant_of_.end() ? std::nullopt : std::optional(found->second);
}

Result<void> check_names(const TenantCells& quota) {
  if (!is_name(quota.tenant)) {
    return Error{fmt::format("tenant {}: a name has 1 to {} characters, and no space, comma or #",
                             base::quoted(quota.tenant), kLongestName)};
  }
  const auto wrong = std::find_if_not(quota.members.begin(), quota.members.end(), is_name);
  if (wrong == quota.members.end()) return {};
  return Error{
      fmt::format("tenant {}: {} is not the name of a user", quota.tenant, base::quoted(*wrong))};
}

Result<void> Quotas::set(TenantCells quota, const Cluster& cluster) {
  if (auto ok = check_names(quota); !ok) return ok;
  std::sort(quota.members.begin(), quota.members.end());
  quota.members.erase(std::unique(quota.members.begin(), quota.members.end()), quota.members.end());
  if (quota.members == std::vector<std::string>{quota.tenant}) quota.members.clear();
  std::stable_sort(quota.cells.begin(), quota.cells.end(), precedes);
  Quotas next = *this;
  next.remove(quota.tenant);
  const auto users = quota.members.empty() ? std::vector<std::string>{quota.tenant} : quota.members;
  for (const std::string& user : users) {
    if (const auto other = next.tenant_of(user))
      return Error{fmt::format("tenant {}: user {} has the cells of {} already", quota.tenant, user,
                               next.all_[*other].tenant)};
  }
  const std::string tenant = quota.tenant;
  const int gpus = quota.gpus();
  next.all_.push_back(std::move(quota));
  next.index();
  Places places = without_places(next);
  if (!fill(places, cluster, installed_gpus(cluster))) {
    return Error{fmt::format(
        "tenant {}: its cells of {} do not fit the {} of the cluster beside the cells of others; "
        "give it fewer or smaller ones",
        tenant, plural(gpus, "GPU"), plural(cluster.installed(), "GPU"))};
  }
  *this = std::move(next);
  return {};
}

bool Quotas::remove(std::string_view tenant) {
  const auto gone =
      std::erase_if(all_, [&](const TenantCells& quota) { return quota.tenant == tenant; });
  index();
  return gone > 0;
}

void Quotas::index() {
  std::sort(all_.begin(), all_.end(),
            [](const TenantCells& a, const TenantCells& b) { return a.tenant < b.tenant; });
  tenant_of_.clear();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].members.empty()) tenant_of_[all_[i].tenant] = i;
    for (const std::string& user : all_[i].members) tenant_of_[user] = i;
  }
}

Result<std::vector<Cell>> parse_cells(std::string_view text, const Cluster& cluster) {
  std::vector<Cell> cells;
  for (const auto item : split(text, ',')) {
    const auto some = parse_item(text, trim(item), cluster);
    if (!some) return some.error();
    if (cells.size() + static_cast<std::size_t>(some->count) > kMostCells)
      return bad_cells(text, fmt::format("more than {} cells", kMostCells));
    cells.insert(cells.end(), static_cast<std::size_t>(some->count), some->cell);
  }
  return cells;
}

std::string text_of(const std::vector<Cell>& cells, const Cluster& cluster, bool always_typed) {
  std::string text;
  for (auto at = cells.begin(); at != cells.end();) {
    const auto end = std::find_if(at, cells.end(), [&](const Cell& c) { return !(c == *at); });
    text += fmt::format("{}{}x{}", text.empty() ? "" : ",", end - at, at->gpus);
    if (always_typed || cluster.types() > 1) text += ":" + cluster.type_name(at->type);
    at = end;
  }
  return text;
}

Result<Quotas> parse_quotas(std::string_view text, const std::string& source,
                            const Cluster& cluster) {
  Quotas quotas;
  std::size_t number = 0;
  for (const auto whole : split(text, '\n')) {
    ++number;
    const auto at = [&](const std::string& what) {
      return Error{fmt::format("{}:{}: {}", source, number, what)};
    };
    std::string line(whole.substr(0, whole.find('#')));
    std::replace(line.begin(), line.end(), '\t', ' ');
    std::replace(line.begin(), line.end(), '\r', ' ');
    std::vector<std::string> words;
    for (const auto word : split(line, ' ')) {
      if (!word.empty()) words.emplace_back(word);
    }
    if (words.empty()) continue;
    if (words.size() < 2) return at("a line is TENANT CELLS [USER ...]");
    if (quotas.find(words[0]) != nullptr)
      return at(fmt::format("tenant {} is there twice", base::quoted(words[0])));
    auto cells = parse_cells(words[1], cluster);
    if (!cells) return at(cells.error().message);
    TenantCells quota{words[0], std::move(*cells), {words.begin() + 2, words.end()}};
    if (auto ok = quotas.set(std::move(quota), cluster); !ok) return at(ok.error().message);
  }
  if (quotas.empty()) return Error{fmt::format("{}: names no tenant", source)};
  return quotas;
}

Places find_places(const Quotas& quotas, const Cluster& cluster, const Places& before,
                   const std::vector<std::uint64_t>& kept) {
  const auto usable = usable_gpus(cluster, kept);
  const auto installed = installed_gpus(cluster);
  Places places = without_places(quotas);
  stay(places, before, usable);
  if (fill(places, cluster, usable)) return places;
  // Where no GPUs can be used instead, a cell stays where it is, until its node is back.
  stay(places, before, installed);
  if (fill(places, cluster, installed)) return places;
  // The others are in the way: all cells get new places.
  Places anew = without_places(quotas);
  if (fill(anew, cluster, usable)) return anew;
  anew = without_places(quotas);
  return fill(anew, cluster, installed) ? anew : places;
}

Json to_json(const std::vector<CellPlace>& places) {
  Json json = Json::array();
  for (const CellPlace& place : places) {
    json.push_back(Json::array({place.cell.type.value(), place.cell.gpus, place.node.value(),
                                std::countr_zero(place.gpus)}));
  }
  return json;
}

Result<std::vector<CellPlace>> places_of(const Json& json) {
  const Error wrong{"the places of cells are not lists of four small numbers"};
  if (!json.is_array()) return wrong;
  std::vector<CellPlace> places;
  for (const Json& row : json) {
    if (!row.is_array() || row.size() != 4) return wrong;
    for (const Json& number : row) {
      if (!number.is_number_integer() || number < 0 || number > 1'000'000'000) return wrong;
    }
    CellPlace place;
    if (row[0] > std::numeric_limits<GpuType::rep>::max()) return wrong;
    place.cell = {GpuType(row[0].get<GpuType::rep>()), row[1].get<int>()};
    place.node = NodeId(static_cast<NodeId::rep>(row[2].get<int>()));
    const int first = row[3].get<int>();
    if (place.cell.gpus > 0 && place.cell.gpus <= kMaxGpusPerNode - first)
      place.gpus = block(first, place.cell.gpus);
    places.push_back(place);
  }
  return places;
}

}  // namespace rubato::cells
