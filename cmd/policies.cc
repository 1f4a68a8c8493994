#include <fmt/format.h>

#include "cmd/command_line.h"
#include "rubato/base/json.h"
#include "rubato/policy/all.h"

namespace rubato::cmd {
namespace {

Json as_json() {
  Json list = Json::array();
  for (const auto& entry : all_policies()) {
    Json keys = Json::array();
    for (const auto& key : entry.keys) {
      keys.push_back({{"name", key.name}, {"default", key.fallback}, {"help", key.help}});
    }
    list.push_back({{"name", entry.name},
                    {"summary", entry.summary},
                    {"paper", entry.paper},
                    {"knows", entry.knows},
                    {"elastic", entry.elastic},
                    {"work_conserving", entry.work_conserving},
                    {"keys", keys}});
  }
  return {{"policies", list}};
}

void print_for_people() {
  for (const auto& entry : all_policies()) {
    fmt::print("{:<17} {}\n", entry.name, entry.summary);
    if (!entry.paper.empty()) fmt::print("{:<17}   paper: {}\n", "", entry.paper);
    fmt::print("{:<17}   knows: {}; {}\n", "", entry.knows, entry.elastic ? "elastic" : "rigid");
    for (const auto& key : entry.keys) {
      fmt::print("{:<17}   {}={}  {}\n", "", key.name, key.fallback.empty() ? "FILE" : key.fallback,
                 key.help);
    }
  }
  fmt::print("\nWrite NAME:key=value,key=value; several policies are separated by commas.\n");
}

}  // namespace

void add_policies(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("policies",
                                     "List every scheduling policy: its paper, what it must know "
                                     "about jobs, and its keys with their "
                                     "defaults. A policy is written NAME or NAME:key=value,...");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print one JSON object instead of text");
  command->footer("Examples:\n  rubato policies\n  rubato policies --json\n\nExit code: 0.");
  command->callback([json, &chosen] {
    chosen = [json] {
      *json ? fmt::print("{}\n", as_json().dump(2)) : print_for_people();
      return 0;
    };
  });
}

}  // namespace rubato::cmd
