#include <algorithm>
#include <fmt/format.h>
#include <memory>

#include "cmd/command_line.h"
#include "rubato/base/json.h"
#include "rubato/policy/all.h"

namespace rubato::cmd {
namespace {

Json as_json(const PolicyEntry& entry) {
  Json keys = Json::array();
  for (const auto& key : entry.keys) {
    keys.push_back({{"name", key.name}, {"default", key.fallback}, {"help", key.help}});
  }
  return {{"name", entry.name},
          {"group", group_of(entry)},
          {"summary", entry.summary},
          {"paper", entry.paper},
          {"knows", entry.knows},
          {"elastic", entry.elastic},
          {"one_type", entry.one_type},
          {"admits", entry.admits},
          {"work_conserving", entry.work_conserving},
          {"live", entry.not_live.empty()},
          {"not_live", entry.not_live},
          {"keys", keys},
          {"example", example_of(entry)}};
}

Json list_as_json() {
  Json list = Json::array();
  for (const auto& entry : all_policies()) list.push_back(as_json(entry));
  Json groups = Json::array();
  for (const auto& group : policy_groups())
    groups.push_back({{"name", group.name}, {"title", group.title}});
  return {{"policies", list}, {"groups", groups}};
}

void print_list() {
  std::size_t width = 0;
  for (const auto& entry : all_policies()) width = std::max(width, entry.name.size());
  for (const auto& group : policy_groups()) {
    fmt::print("{}: {}\n", group.name, group.title);
    for (const auto& entry : all_policies()) {
      if (group_of(entry) == group.name)
        fmt::print("  {:<{}}  {}\n", entry.name, width, entry.summary);
    }
    fmt::print("\n");
  }
  fmt::print(
      "Write NAME:key=value,key=value; several policies are separated by commas.\n"
      "`rubato policies NAME` shows one with its paper, its keys and an example.\n");
}

void print_line(std::string_view what, std::string_view text) {
  fmt::print("  {:<10}{}\n", what, text);
}

void print_one(const PolicyEntry& entry) {
  fmt::print("{}: {}\n\n", entry.name, entry.summary);
  print_line("paper", entry.paper.empty() ? "none: a common baseline" : entry.paper);
  print_line("group", group_of(entry));
  print_line("knows", entry.knows);
  print_line("GPUs", entry.elastic ? "it chooses how many GPUs a job gets"
                                   : "a job gets as many GPUs as it asks for");
  print_line("cluster", entry.one_type ? "one type of GPUs" : "any types of GPUs");
  if (entry.admits) print_line("deadlines", "it refuses jobs whose deadlines it cannot keep");
  print_line("live", entry.not_live.empty() ? "yes" : entry.not_live);
  if (!entry.keys.empty()) fmt::print("\nKeys, with their defaults:\n");
  for (const auto& key : entry.keys) {
    fmt::print("  {:<22}{}\n",
               fmt::format("{}={}", key.name, key.fallback.empty() ? "..." : key.fallback),
               key.help);
  }
  fmt::print("\nExample:\n  rubato generate --jobs 100 --cluster 4x8 --out jobs.csv\n  {}\n",
             example_of(entry));
  if (entry.not_live.empty()) fmt::print("  rubato policy {}\n", entry.name);
}

int run_policies(const std::string& name, bool json) {
  if (name.empty()) {
    json ? fmt::print("{}\n", list_as_json().dump(2)) : print_list();
    return 0;
  }
  const auto entry = find_policy(name);
  if (!entry) return bad_input(entry.error());
  json ? fmt::print("{}\n", as_json(**entry).dump(2)) : print_one(**entry);
  return 0;
}

}  // namespace

void add_policies(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "policies",
      "List the scheduling policies in groups, or show one of them: its paper, what it must know "
      "about jobs, its keys with their defaults, and an example. A policy is written NAME or "
      "NAME:key=value,...");
  struct Flags {
    std::string name;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  command->add_option("name", flags->name, "show only this policy, with all details")
      ->type_name("NAME");
  command->add_flag("--json", flags->json, "print one JSON object with all details");
  command->footer(
      "Examples:\n  rubato policies\n  rubato policies tiresias-las\n  rubato policies --json\n\n"
      "Exit code: 0, or 2 if there is no such policy.");
  command->callback(
      [flags, &chosen] { chosen = [flags] { return run_policies(flags->name, flags->json); }; });
}

}  // namespace rubato::cmd
