// Quotas of tenants: cells, which are whole nodes or aligned parts of nodes (docs/cells.md).
//
// A node of n GPUs has levels: n, its half, the half of that while it is even, and single GPUs. So
// 8 GPUs give 8, 4, 2 and 1, and 6 give 6, 3 and 1. A cell of a level begins at a multiple of its
// size, so blocks of two levels are disjoint or one is inside the other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/base/time.h"
#include "rubato/core/allocation.h"
#include "rubato/core/cluster.h"

namespace rubato::cells {

// Borrowed GPUs are back within this time, so a job that may take longer to stop borrows none.
inline constexpr Duration kNotice = std::chrono::seconds(30);

struct Cell {
  GpuType type;
  int gpus = 0;
  friend bool operator==(const Cell&, const Cell&) = default;
};

struct TenantCells {
  std::string tenant;
  std::vector<Cell> cells;           // the largest first
  std::vector<std::string> members;  // the users; empty: the user with the tenant's name
  friend bool operator==(const TenantCells&, const TenantCells&) = default;

  [[nodiscard]] int gpus() const;
};

// An error if the tenant or a member cannot be called so.
[[nodiscard]] Result<void> check_names(const TenantCells& quota);

class Quotas {
 public:
  [[nodiscard]] const std::vector<TenantCells>& all() const { return all_; }  // by tenant
  [[nodiscard]] bool empty() const { return all_.empty(); }
  [[nodiscard]] const TenantCells* find(std::string_view tenant) const;
  // The place of the user's tenant in all(); nullopt if the user has none.
  [[nodiscard]] std::optional<std::size_t> tenant_of(const std::string& user) const;

  // Replaces what the tenant had. An error if a user would have two tenants, or if the cells of all
  // do not fit the cluster.
  [[nodiscard]] Result<void> set(TenantCells quota, const Cluster& cluster);
  bool remove(std::string_view tenant);

  friend bool operator==(const Quotas& a, const Quotas& b) { return a.all_ == b.all_; }

 private:
  std::vector<TenantCells> all_;
  std::map<std::string, std::size_t> tenant_of_;
  void index();
};

// "2xnode,1x4,3x1:k80": how many, of which size, of which type of GPUs. A cluster of one type needs
// no name. "node" is the largest node of the type.
[[nodiscard]] Result<std::vector<Cell>> parse_cells(std::string_view text, const Cluster& cluster);
// With the type where there are several, or always.
[[nodiscard]] std::string text_of(const std::vector<Cell>& cells, const Cluster& cluster,
                                  bool always_typed = false);

// A file: lines "TENANT CELLS [USER ...]", empty lines, and comments after #.
[[nodiscard]] Result<Quotas> parse_quotas(std::string_view text, const std::string& source,
                                          const Cluster& cluster);

// Where a cell is; without GPUs if there is no place for it.
struct CellPlace {
  Cell cell;
  NodeId node;
  std::uint64_t gpus = 0;
  friend bool operator==(const CellPlace&, const CellPlace&) = default;
};
using Places = std::vector<std::vector<CellPlace>>;  // by tenant and cell

// Chooses a place for every cell. A cell stays where it is while its GPUs can be used. Another one
// moves to GPUs outside of all cells; where there are none it stays. GPUs in `kept` (by node; may
// be empty) are those of jobs that cannot leave: cells avoid them.
[[nodiscard]] Places find_places(const Quotas& quotas, const Cluster& cluster, const Places& before,
                                 const std::vector<std::uint64_t>& kept);

// Of one tenant. What cannot be a place is read as none.
[[nodiscard]] Json to_json(const std::vector<CellPlace>& places);
[[nodiscard]] Result<std::vector<CellPlace>> places_of(const Json& json);

}  // namespace rubato::cells
