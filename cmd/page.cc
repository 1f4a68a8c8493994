// page: opens the daemon's web page.
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/base/text.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX wants it declared

namespace rubato::cmd {
namespace {

struct PageFlags {
  ClientFlags client;
  bool stay = false;
};

// Where a browser finds the daemon: at --server, else at the port that the daemon listens on.
Result<std::string> page_address(const ClientFlags& flags, const Client& client) {
  if (const HttpEndpoint& endpoint = client.http().endpoint(); endpoint.unix_path.empty())
    return (endpoint.tls ? "https://" : "http://") + endpoint.text();
  const auto state = state_directory(flags.state);
  if (!state) return state.error();
  std::ifstream file(*state + "/api.address");
  std::string address;
  if (!std::getline(file, address) || address.empty())
    return Error{fmt::format("{}/api.address cannot be read; is this the daemon's state directory?",
                             *state)};
  return address.starts_with("https://") ? address : "http://" + address;
}

// Shows the address in a browser, if this machine has a display. The browser's own words are
// dropped.
void open_browser(const std::string& url) {
  const char* x11 = std::getenv("DISPLAY");
  const char* wayland = std::getenv("WAYLAND_DISPLAY");
  if ((x11 == nullptr || *x11 == 0) && (wayland == nullptr || *wayland == 0)) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  std::string name = "xdg-open";
  std::string argument = url;
  char* const words[] = {name.data(), argument.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, "xdg-open", &actions, nullptr, words, environ) == 0) {
    int status = 0;
    ::waitpid(child, &status, 0);
  }
  posix_spawn_file_actions_destroy(&actions);
}

int open_page(const PageFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    const auto address = page_address(flags.client, client);
    if (!address) return bad_input(address.error());
    const Said said = client.ask({"POST", "/v1/page/codes", {}, {}});
    if (!said.ok()) return fail(said);
    // A browser does not send what follows the '#', so the code is in no log.
    const std::string url = fmt::format("{}/#code={}", *address, render::text(said.body, "code"));
    if (flags.client.json) {
      print_json({{"url", url}, {"seconds", said.body.value("seconds", 0)}});
    } else {
      fmt::print("{}\n", url);
    }
    std::fflush(stdout);
    if (!flags.stay) open_browser(url);
    return 0;
  });
}

}  // namespace

void add_page(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "page",
      "Print the address of the daemon's web page, and open it if there is a display.\n"
      "\n"
      "The address has a code that can be used once, within two minutes. The browser exchanges it "
      "for a token of its own, which ends after 12 hours. `rubato users list` shows these tokens, "
      "and `rubato users token USER --revoke TOKEN` ends one.");
  auto flags = std::make_shared<PageFlags>();
  command->add_flag("--print", flags->stay, "only print the address, and open no browser");
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato page\n"
                      "  ssh -L 8787:127.0.0.1:8787 cluster rubato page --print",
                      ""));
  command->callback([flags, &chosen] { chosen = [flags] { return open_page(*flags); }; });
}

}  // namespace rubato::cmd
