#include "rubato/graph/graph.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "cmd/command_line.h"
#include "cmd/progress_bar.h"
#include "cmd/report_page.h"
#include "rubato/base/text.h"
#include "rubato/graph/learned_placement.h"
#include "rubato/graph/rules.h"
#include "rubato/graph/samples.h"
#include "rubato/sim/text_file.h"

namespace rubato::cmd {
namespace {

constexpr std::size_t kMostPlacements = 20'000'000;

struct MakeFlags {
  std::string name, out = "-";
};

struct PlaceFlags {
  std::string file, devices = "gpu=4", report;
  std::string methods = "single,min-cut,heft,reinforce,ppo";
  graph::Machine machine;
  graph::TrialOptions trials;
  bool json = false;
};

// What one method found.
struct Row {
  std::string method;
  std::string what;
  graph::Placement placement;
  double seconds = 0;
  std::size_t samples = 0;  // placements that were tried; 0: a rule
  std::size_t until_heft = 0;
  double cpu_s = 0;
  std::vector<double> curve;
};

struct MethodName {
  std::string_view name;
  std::string_view what;
};
constexpr auto kMethods = std::to_array<MethodName>({
    {"single", "everything on one device"},
    {"min-cut", "few bytes between equally busy devices"},
    {"heft", "HEFT: each operator where it ends first"},
    {"reinforce", "policy gradient (Mirhoseini et al., ICML'17)"},
    {"ppo", "proximal policy optimisation (Spotlight, ICML'18)"},
    {"brute-force", "the best of all placements"},
});

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Row place_by(const std::string& method, const graph::Problem& problem, const PlaceFlags& flags) {
  Row row;
  row.method = method;
  for (const auto& [name, what] : kMethods) {
    if (name == method) row.what = what;
  }
  const double began = processor_seconds();
  if (method == "single") row.placement = graph::single_device(problem);
  if (method == "min-cut") row.placement = graph::min_cut(problem);
  if (method == "heft") row.placement = graph::heft(problem).placement;
  if (method == "brute-force") {
    row.samples = *graph::placement_count(problem, kMostPlacements);
    ProgressBar progress(method, row.samples);
    row.placement = graph::brute_force(problem, &progress.done());
  }
  if (method == "reinforce" || method == "ppo") {
    graph::TrialOptions options = flags.trials;
    options.method = method == "ppo" ? graph::Method::ppo : graph::Method::reinforce;
    ProgressBar progress(method, static_cast<std::size_t>(options.samples));
    auto trials = graph::try_placements(problem, options, &progress.done());
    row.samples = trials.curve.size();
    row.placement = std::move(trials.best);
    row.curve = std::move(trials.curve);
  }
  row.cpu_s = processor_seconds() - began;
  row.seconds = problem.step_seconds(row.placement);
  return row;
}

bool fits(const Row& row) { return row.seconds != graph::Problem::kNever; }

void print_table(const std::vector<Row>& rows, const graph::Problem& problem) {
  fmt::print("{}: {} operators in {} groups, on {} devices\n\n", problem.graph().name,
             problem.graph().operators.size(), problem.groups(), problem.devices());
  fmt::print("{:<12} {:>12} {:>9} {:>9} {:>15} {:>9}  {}\n", "method", "step (ms)", "of heft",
             "samples", "until heft +2%", "CPU (s)", "what");
  const auto heft =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.method == "heft"; });
  for (const Row& row : rows) {
    const std::string step = fits(row) ? fmt::format("{:.3f}", 1e3 * row.seconds) : "does not fit";
    const bool comparable = heft != rows.end() && fits(*heft) && fits(row);
    fmt::print("{:<12} {:>12} {:>9} {:>9} {:>15} {:>9.2f}  {}\n", row.method, step,
               comparable ? fmt::format("{:.1f}%", 100 * row.seconds / heft->seconds) : "",
               row.samples > 0 ? fmt::format("{}", row.samples) : "",
               row.until_heft > 0 ? fmt::format("{}", row.until_heft) : "", row.cpu_s, row.what);
  }
}

Json placement_json(const Row& row, const graph::Problem& problem) {
  Json placement = Json::object();
  for (std::size_t g = 0; g < problem.groups(); ++g)
    placement[problem.graph().groups[g]] = problem.machine().devices[row.placement[g]].name;
  return placement;
}

Json row_json(const Row& row, const graph::Problem& problem) {
  Json json = {{"method", row.method}, {"what", row.what}, {"fits", fits(row)}};
  json["step_s"] = fits(row) ? Json(row.seconds) : Json(nullptr);
  json["samples"] = row.samples;
  json["samples_until_heft"] = row.until_heft > 0 ? Json(row.until_heft) : Json(nullptr);
  json["cpu_s"] = row.cpu_s;
  json["placement"] = placement_json(row, problem);
  return json;
}

// The curve of a search, with few enough points to draw.
Json curve_json(const std::vector<double>& curve) {
  constexpr std::size_t kPoints = 400;
  Json points = Json::array();
  double last = graph::Problem::kNever;
  const std::size_t stride = std::max<std::size_t>(1, curve.size() / kPoints);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (curve[i] == graph::Problem::kNever) continue;
    if (i % stride != 0 && i + 1 != curve.size() && last != graph::Problem::kNever) continue;
    last = curve[i];
    points.push_back({i + 1, curve[i]});
  }
  return points;
}

Json schedule_json(const Row& row, const graph::Problem& problem) {
  const auto schedule = problem.schedule(row.placement);
  Json transfers = Json::array();
  for (const auto& t : schedule.transfers) transfers.push_back({t.from, t.to, t.start, t.end});
  return {{"start", schedule.start}, {"end", schedule.end}, {"transfers", transfers}};
}

Json page_data(const std::vector<Row>& rows, const graph::Problem& problem,
               const PlaceFlags& flags) {
  const auto& graph = problem.graph();
  Json operators = Json::array(), devices = Json::array(), methods = Json::array();
  for (const auto& op : graph.operators) {
    Json inputs = Json::array();
    for (const auto& input : op.inputs) inputs.push_back(input.from);
    operators.push_back({{"name", op.name}, {"group", op.group}, {"inputs", inputs}});
  }
  for (std::size_t d = 0; d < problem.devices(); ++d) {
    const auto& device = problem.machine().devices[d];
    devices.push_back({{"name", device.name},
                       {"memory", device.memory == graph::Problem::kNever ? Json(nullptr)
                                                                          : Json(device.memory)}});
  }
  for (const Row& row : rows) {
    Json method = row_json(row, problem);
    method["placement"] = std::vector<int>(row.placement.begin(), row.placement.end());
    method["curve"] = curve_json(row.curve);
    if (fits(row)) method["schedule"] = schedule_json(row, problem);
    methods.push_back(std::move(method));
  }
  Json memory = Json::array();
  for (std::size_t g = 0; g < problem.groups(); ++g) memory.push_back(problem.group_memory(g));
  return {{"kind", "graph"},
          {"graph", graph.name},
          {"settings",
           {{"devices", flags.devices},
            {"bandwidth", fmt::format("{:g} GB/s", flags.machine.bytes_s / 1e9)},
            {"latency", fmt::format("{:g} us", flags.machine.latency_s * 1e6)},
            {"seed", std::to_string(flags.trials.seed)}}},
          {"devices", devices},
          {"groups", graph.groups},
          {"group_memory", memory},
          {"operators", operators},
          {"methods", methods}};
}

Result<graph::Problem> read_problem(const PlaceFlags& flags) {
  const auto text = read_text_file(flags.file);
  if (!text) return text.error();
  const auto read = graph::parse_graph(*text, flags.file);
  if (!read) return read.error();
  const auto devices = graph::parse_devices(flags.devices);
  if (!devices) return Error{fmt::format("--devices: {}", devices.error().message)};
  graph::Machine machine = flags.machine;
  machine.devices = *devices;
  auto problem = graph::Problem::make(*read, machine);
  if (!problem) return Error{fmt::format("{}: {}", flags.file, problem.error().message)};
  return problem;
}

Result<std::vector<std::string>> wanted_methods(const PlaceFlags& flags,
                                                const graph::Problem& problem) {
  std::vector<std::string> known, wanted;
  for (const auto& method : kMethods) known.emplace_back(method.name);
  for (const auto word : split(flags.methods, ',')) {
    const std::string name(trim(word));
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Error{fmt::format("--methods: there is no method {}; the methods are {}",
                               base::quoted(name), fmt::join(known, ", "))};
    }
    if (name == "brute-force" && !graph::placement_count(problem, kMostPlacements)) {
      return Error{
          fmt::format("--methods: {} groups on {} devices have more than {} placements, "
                      "too many for brute-force",
                      problem.groups(), problem.devices(), kMostPlacements)};
    }
    wanted.push_back(name);
  }
  return wanted;
}

int run_place(const PlaceFlags& flags) {
  const auto problem = read_problem(flags);
  if (!problem) return bad_input(problem.error());
  const auto methods = wanted_methods(flags, *problem);
  if (!methods) return bad_input(methods.error());
  const double heft = problem->step_seconds(graph::heft(*problem).placement);
  std::vector<Row> rows;
  for (const auto& method : *methods) {
    rows.push_back(place_by(method, *problem, flags));
    const graph::Trials trials{{}, 0, rows.back().curve};
    rows.back().until_heft = trials.samples_until(1.02 * heft);
  }
  if (!flags.report.empty()) {
    const auto page = study_page(page_data(rows, *problem, flags));
    if (auto ok = write_file(flags.report, page); !ok) return bad_input(ok.error());
  }
  if (!flags.json) {
    print_table(rows, *problem);
    return 0;
  }
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(row_json(row, *problem));
  fmt::print("{}\n", Json{{"graph", problem->graph().name},
                          {"operators", problem->graph().operators.size()},
                          {"groups", problem->groups()},
                          {"methods", list}}
                         .dump(2));
  return 0;
}

int run_make(const MakeFlags& flags) {
  for (const auto& sample : graph::sample_graphs()) {
    if (sample.name != flags.name) continue;
    if (auto ok = write_file(flags.out, graph::to_text(sample.make())); !ok)
      return bad_input(ok.error());
    return 0;
  }
  std::vector<std::string_view> names;
  for (const auto& sample : graph::sample_graphs()) names.push_back(sample.name);
  return bad_input({fmt::format("there is no graph {}; the graphs are {}", base::quoted(flags.name),
                                fmt::join(names, ", "))});
}

void add_make(CLI::App& command, Action& chosen) {
  auto* make = command.add_subcommand("make", "Write one of the graphs that Rubato has.");
  auto flags = std::make_shared<MakeFlags>();
  std::string help = "which graph:";
  for (const auto& sample : graph::sample_graphs())
    help += fmt::format(" {} ({});", sample.name, sample.what);
  help.pop_back();
  make->add_option("name", flags->name, help)->type_name("NAME")->required();
  make->add_option("--out", flags->out, "file to write to; - is standard output")
      ->type_name("FILE")
      ->capture_default_str();
  make->footer(
      "Examples:\n"
      "  rubato graph make inception --out inception.json\n"
      "\n"
      "docs/graph.md describes the graphs and the file.\n"
      "\n"
      "Exit code: 0 done, 2 bad input.");
  make->callback([flags, &chosen] { chosen = [flags] { return run_make(*flags); }; });
}

void add_place(CLI::App& command, Action& chosen) {
  auto* place = command.add_subcommand(
      "place",
      "Place the operators of a graph on devices by several methods, and compare the simulated "
      "time of a step. The same seed gives the same placements.");
  auto flags = std::make_shared<PlaceFlags>();
  const auto option = [&](const char* name, auto& value, const char* type, const char* help) {
    return place->add_option(name, value, help)->type_name(type);
  };
  option("file", flags->file, "FILE", "the graph (JSON)")->required();
  option("--devices", flags->devices, "TYPE=COUNT[:BYTES],...",
         "the devices of each type, and the memory of each of them")
      ->capture_default_str();
  option("--bandwidth", flags->machine.bytes_s, "BYTES",
         "bytes per second from one device to another")
      ->check(above_zero())
      ->capture_default_str();
  option("--latency", flags->machine.latency_s, "SECONDS", "what each transfer takes in addition")
      ->check(zero_or_more())
      ->capture_default_str();
  option("--methods", flags->methods, "NAME,...",
         "single, min-cut, heft, reinforce, ppo or brute-force (only for small graphs)")
      ->capture_default_str();
  option("--samples", flags->trials.samples, "NUMBER",
         "placements that reinforce and ppo may try, each")
      ->check(from_to(1, 10'000'000))
      ->capture_default_str();
  option("--seed", flags->trials.seed, "NUMBER", "seed of the random numbers")
      ->capture_default_str();
  option("--report", flags->report, "FILE",
         "write a page with the placements and schedules (HTML)");
  place->add_flag("--json", flags->json, "print the results and the placements as JSON");
  place->footer(
      "Examples:\n"
      "  rubato graph make transformer --out transformer.json\n"
      "  rubato graph place transformer.json --devices gpu=4:16e9 --report transformer.html\n"
      "  rubato graph place small.json --devices gpu=2,cpu=1 --methods heft,brute-force --json\n"
      "\n"
      "docs/graph.md describes the file, the simulation and the methods.\n"
      "\n"
      "Exit code: 0 done, 2 bad input.");
  place->callback([flags, &chosen] { chosen = [flags] { return run_place(*flags); }; });
}

}  // namespace

void add_graph(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "graph",
      "Place the operators of a neural network on devices: rules, and learned placements.");
  command->require_subcommand(1);
  add_make(*command, chosen);
  add_place(*command, chosen);
}

}  // namespace rubato::cmd
