// Lets a script speak to the manager of Slurm (engine/slurm_manager.h): reads requests as lines of
// JSON from standard input, prints the answers as lines of JSON, and lists twice a second. For
// e2e/slurm.py.
//   {"submit": {"name": "...", "node": "...", "gpus": 1, "command": [...], "directory": "...",
//               "log": "...", "user": "", "comment": ""}}
//   {"cancel": "NAME"}
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <string>
#include <unistd.h>
#include <variant>

#include "rubato/base/json.h"
#include "rubato/core/node_states.h"
#include "rubato/engine/slurm_manager.h"

namespace rubato::engine {
namespace {

using std::chrono::steady_clock;

constexpr std::array<const char*, 5> kStates{"waiting", "running", "ending", "gone", "lost"};

struct ToJson {
  Json operator()(const Listing& listing) const {
    Json nodes = Json::object();
    for (const auto& node : listing.nodes) {
      nodes[node.name] = {
          {"gpus", node.gpus},     {"type", node.type},
          {"why", node.why},       {"state", std::string(core::to_text(node.state))},
          {"others", node.others}, {"labels", node.labels}};
    }
    Json shares = Json::object();
    for (const auto& share : listing.shares) {
      shares[share.name] = {{"native", share.native},
                            {"node", share.node},
                            {"why", share.why},
                            {"state", kStates.at(static_cast<std::size_t>(share.state))}};
    }
    return {{"listing", listing.number}, {"nodes", nodes}, {"shares", shares}};
  }
  Json operator()(const ShareTaken& taken) const {
    return {{"taken", taken.name}, {"native", taken.native}};
  }
  Json operator()(const ShareRefused& refused) const {
    return {{"refused", refused.name}, {"why", refused.why}};
  }
  Json operator()(const ShareUnknown& unknown) const {
    return {{"unknown", unknown.name}, {"why", unknown.why}};
  }
  Json operator()(const ManagerTrouble& trouble) const { return {{"trouble", trouble.why}}; }
};

void obey(SlurmManager& manager, const std::string& line) {
  const Json request = Json::parse(line);
  if (request.contains("cancel")) return manager.cancel(request.at("cancel"));
  const Json& share = request.at("submit");
  manager.submit({share.at("name"), share.at("node"), share.at("gpus"), share.at("command"),
                  share.at("directory"), share.at("log"), share.value("user", ""),
                  share.value("comment", "")});
}

int drive(const SlurmOptions& options) {
  SlurmManager manager(options);
  std::string input;
  steady_clock::time_point next_list{};
  for (;;) {
    pollfd wait{STDIN_FILENO, POLLIN, 0};
    if (::poll(&wait, 1, 20) > 0) {
      std::array<char, 4096> bytes;
      const auto size = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (size <= 0) return 0;
      input.append(bytes.data(), static_cast<std::size_t>(size));
    }
    for (auto end = input.find('\n'); end != std::string::npos; end = input.find('\n')) {
      obey(manager, input.substr(0, end));
      input.erase(0, end + 1);
    }
    if (steady_clock::now() >= next_list) {
      manager.list();
      next_list = steady_clock::now() + std::chrono::milliseconds(500);
    }
    manager.turn();
    for (const auto& answer : manager.take_answers())
      fmt::print("{}\n", std::visit(ToJson(), answer).dump());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace rubato::engine

// PREFIX [PATIENCE_IN_SECONDS [REST [TOKEN]]]
int main(int count, char** words) {
  rubato::engine::SlurmOptions options;
  options.prefix = count > 1 ? words[1] : "";
  if (const char* configuration = std::getenv("SLURM_CONF")) options.configuration = configuration;
  if (count > 2) options.patience = std::chrono::seconds(std::stoi(words[2]));
  if (count > 3) {
    const auto address = rubato::engine::slurm_rest_address(words[3]);
    if (!address) {
      fmt::print(stderr, "slurm_driver: {}\n", address.error().message);
      return 2;
    }
    options.rest = *address;
  }
  if (count > 4) options.token = words[4];
  if (const auto checked = check(options); !checked) {
    fmt::print(stderr, "slurm_driver: {}\n", checked.error().message);
    return 2;
  }
  return rubato::engine::drive(options);
}
