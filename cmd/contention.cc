#include "rubato/sim/contention.h"

#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "cmd/command_line.h"
#include "rubato/base/json.h"
#include "rubato/base/text.h"

namespace rubato::cmd {
namespace {

struct ContentionFlags {
  std::string table, pairs, links;
  std::vector<std::string> without;
  double interface_bytes_s = 5e9, switch_bytes_s = 16e9;
  int gpus_per_switch = 4;
  bool json = false;
};

// A table, as rows of what was measured and what a model says of it.
struct Row {
  std::string name;
  std::string numbers;
  FitError error;
};

Result<ContentionTable> wanted_entries(const ContentionFlags& flags, const ContentionTable& all) {
  ContentionTable table = all.without(0, 0);
  for (const auto& text : flags.without) {
    const auto parts = split(text, ':');
    const auto gpus = parse_integer(parts[0]);
    const auto nodes = parts.size() == 2 ? parse_integer(parts[1]) : std::nullopt;
    if (!gpus || !nodes || *gpus < 1 || *gpus > 4096 || *nodes < 1 || *nodes > 4096)
      return Error{
          fmt::format("--without {}: write GPUS:NODES, for example 8:8", base::quoted(text))};
    table = table.without(static_cast<int>(*gpus), static_cast<int>(*nodes));
  }
  if (table.shapes().empty()) return Error{"--without leaves no entry of the table"};
  return table;
}

void print_rows(const std::vector<Row>& rows, bool json) {
  if (json) {
    Json list = Json::array();
    for (const auto& row : rows) {
      list.push_back({{"model", row.name},
                      {"numbers_per_network", row.numbers},
                      {"entries", row.error.entries},
                      {"mean_error", row.error.mean},
                      {"worst_error", row.error.worst},
                      {"r_squared", row.error.r_squared}});
    }
    fmt::print("{}\n", list.dump(2));
    return;
  }
  fmt::print("{:<12} {:>20} {:>8} {:>11} {:>12} {:>10}\n", "model", "numbers per network",
             "entries", "mean error", "worst error", "R squared");
  for (const auto& row : rows) {
    fmt::print("{:<12} {:>20} {:>8} {:>11.3f} {:>12.3f} {:>10.2f}\n", row.name, row.numbers,
               row.error.entries, row.error.mean, row.error.worst, row.error.r_squared);
  }
}

int run(const ContentionFlags& flags) {
  const auto read = read_contention(flags.table);
  if (!read) return bad_input(read.error());
  const auto* all = dynamic_cast<const ContentionTable*>(read->get());
  if (all == nullptr) {
    return bad_input({fmt::format("{}: is not a measured table, and nothing else can be fitted to",
                                  flags.table)});
  }
  const auto table = wanted_entries(flags, *all);
  if (!table) return bad_input(table.error());
  const PairLoss pairs(fit_pairs(*table));
  const LinkContention links({flags.interface_bytes_s, flags.switch_bytes_s, flags.gpus_per_switch},
                             fit_links(*table, flags.interface_bytes_s));
  for (const auto& [path, text] : {std::pair(flags.pairs, to_csv(pairs.numbers())),
                                   std::pair(flags.links, to_json_text(links))}) {
    if (path.empty()) continue;
    if (auto ok = write_file(path, text); !ok) return bad_input(ok.error());
  }
  print_rows({{"none", "0", error_of(PairLoss({}), *table)},
              {"links", "1", error_of(links, *table)},
              {"two numbers", "2", error_of(pairs, *table)},
              {"table", "all", error_of(*table, *table)}},
             flags.json);
  return 0;
}

}  // namespace

void add_contention(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "contention",
      "Fit simple models of contention to a measured table, and print how far each is off. "
      "`rubato simulate --contention` takes the table and both kinds of fitted files.");
  auto flags = std::make_shared<ContentionFlags>();
  const auto option = [&](const char* name, auto& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  option("--table", flags->table, "FILE",
         "measured table: the speed beside another job, divided by the speed alone, for every pair "
         "of model, GPUs and nodes")
      ->required();
  option("--without", flags->without, "GPUS:NODES",
         "leave out what the table says about jobs of this spread; may be repeated");
  option("--pairs", flags->pairs, "FILE", "write the two numbers of each model (CSV)");
  option("--links", flags->links, "FILE", "write the bytes of each model, with the links (JSON)");
  option("--interface", flags->interface_bytes_s, "BYTES",
         "bandwidth of the network interface of a node, in bytes per second, for --links")
      ->check(above_zero())
      ->capture_default_str();
  option("--switch", flags->switch_bytes_s, "BYTES",
         "bandwidth of the uplink of a PCIe switch, in bytes per second, for --links")
      ->check(above_zero())
      ->capture_default_str();
  option("--gpus-per-switch", flags->gpus_per_switch, "NUMBER", "GPUs on one PCIe switch")
      ->check(from_to(1, 64))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "print the errors as a JSON list");
  command->footer(
      "Examples:\n"
      "  rubato contention --table shared.csv --without 8:8 --pairs pairs.csv\n"
      "  rubato simulate --trace jobs.csv --cluster 4x8 --placement pack --contention pairs.csv "
      "\\\n"
      "    --policy srsf\n"
      "\n"
      "docs/contention.md describes the models and the formats.\n"
      "\n"
      "Exit code: 0 done, 2 bad input.");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
