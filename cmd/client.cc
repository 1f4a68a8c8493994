#include "cmd/client.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "cmd/login.h"
#include "rubato/base/text.h"
#include "rubato/base/unicode.h"
#include "rubato/wire/socket.h"

namespace rubato::cmd {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Like ssh, refuses a secret that other users can read.
Result<std::string> read_token(const std::string& path) {
  const wire::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return Error{fmt::format("cannot read the token file {}: {}", path, std::strerror(errno))};
  }
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode) || (about.st_mode & 077U) != 0) {
    return Error{
        fmt::format("the token file {} must be a file that only its owner can read: "
                    "run chmod 600 on it",
                    path)};
  }
  std::array<char, 4096> bytes{};
  const auto got = ::read(fd.get(), bytes.data(), bytes.size());
  const std::string token(
      trim({bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))}));
  if (token.empty()) return Error{fmt::format("the token file {} is empty", path)};
  return token;
}

// What `given` or the environment says; the flag counts more.
std::string chosen(const std::string& given, const char* variable) {
  return given.empty() ? from_environment(variable) : given;
}

Result<HttpEndpoint> endpoint_of_server(const ClientFlags& flags, const std::string& server) {
  auto endpoint = parse_endpoint(server);
  if (!endpoint) return endpoint;
  if (const std::string ca = chosen(flags.ca, "RUBATO_CA_FILE"); !ca.empty()) {
    auto text = read_small_file(ca, "--ca");
    if (!text) return text.error();
    endpoint->ca = std::move(*text);
  }
  const std::string path = chosen(flags.token_file, "RUBATO_TOKEN_FILE");
  if (path.empty()) return endpoint;
  auto token = read_token(path);
  if (!token) return token.error();
  endpoint->token = std::move(*token);
  return endpoint;
}

// Empty: the daemon of a login, or one on this machine.
std::string server_of(const ClientFlags& flags) {
  return !flags.server.empty() || !flags.state.empty() ? flags.server
                                                       : from_environment("RUBATO_SERVER");
}

// Flags and the environment count more than a login.
Result<std::optional<Login>> login_of(const ClientFlags& flags) {
  const bool chosen = !server_of(flags).empty() || !flags.state.empty() ||
                      !from_environment("RUBATO_STATE").empty();
  return chosen ? Result<std::optional<Login>>(std::nullopt) : read_login();
}

Result<HttpEndpoint> endpoint_of(const ClientFlags& flags) {
  if (const std::string server = server_of(flags); !server.empty())
    return endpoint_of_server(flags, server);
  const auto login = login_of(flags);
  if (!login) return login.error();
  if (*login) {
    auto endpoint = parse_endpoint((*login)->server);
    if (!endpoint) return endpoint;
    endpoint->ca = (*login)->ca;
    endpoint->token = (*login)->token;
    return endpoint;
  }
  const auto state = state_directory(flags.state);
  if (!state) return state.error();
  HttpEndpoint endpoint;
  endpoint.unix_path = *state + "/api.sock";
  return endpoint;
}

}  // namespace

void add_connection(CLI::App& command, ClientFlags& flags) {
  command.add_flag("--json", flags.json, "print the daemon's answer as JSON instead of text");
  command
      .add_option(
          "--state", flags.state,
          "state directory of a daemon on this machine, with its socket (default: RUBATO_STATE, "
          "else ~/.rubato)")
      ->type_name("DIR")
      ->group("Connection");
  command
      .add_option(
          "--server", flags.server,
          "connect to this address instead of the socket: HOST:PORT, or https://HOST:PORT for "
          "TLS (default: RUBATO_SERVER, else the daemon of `rubato login`)")
      ->type_name("HOST:PORT")
      ->group("Connection");
  command
      .add_option("--token-file", flags.token_file,
                  "file with the token for --server; only you may read it (default: "
                  "RUBATO_TOKEN_FILE)")
      ->type_name("FILE")
      ->group("Connection");
  command
      .add_option("--ca", flags.ca,
                  "certificate of the authority that signed that of --server (default: "
                  "RUBATO_CA_FILE, else the authorities that this machine trusts)")
      ->type_name("FILE")
      ->group("Connection");
}

Result<std::string> state_directory(const std::string& given) {
  if (!given.empty()) return given;
  if (const std::string state = from_environment("RUBATO_STATE"); !state.empty()) return state;
  if (const std::string home = from_environment("HOME"); !home.empty()) return home + "/.rubato";
  const passwd* user = ::getpwuid(::geteuid());
  if (user != nullptr && user->pw_dir != nullptr) return std::string(user->pw_dir) + "/.rubato";
  return Error{"this user has no home directory; give --state DIR"};
}

Result<Client> connect(const ClientFlags& flags) {
  auto endpoint = endpoint_of(flags);
  if (!endpoint) return endpoint.error();
  return Client(HttpClient(std::move(*endpoint)),
                [](std::chrono::milliseconds span) { std::this_thread::sleep_for(span); });
}

render::Look look_of_terminal() {
  render::Look look;
  look.now = std::chrono::floor<Duration>(std::chrono::system_clock::now());
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  if (::localtime_r(&seconds, &local) != nullptr)
    look.offset = std::chrono::seconds(local.tm_gmtoff);
  if (::isatty(STDOUT_FILENO) == 0) return look;
  look.colour = from_environment("NO_COLOR").empty() && from_environment("TERM") != "dumb";
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) look.columns = size.ws_col;
  return look;
}

int fail(const Said& said) {
  fmt::print(stderr, "rubato: {}\n", said.error);
  return static_cast<int>(said.exit);
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

int print(const ClientFlags& flags, const Said& said, const Render& render) {
  if (!said.ok()) return fail(said);
  if (flags.json) {
    print_json(said.body);
  } else {
    fmt::print("{}", render(said.body, look_of_terminal()));
  }
  return 0;
}

int with_client(const ClientFlags& flags, const std::function<int(const Client&)>& work) {
  const auto client = connect(flags);
  return client ? work(*client) : bad_input(client.error());
}

int for_each_word(const ClientFlags& flags, const std::vector<std::string>& words,
                  const std::function<int(const Client&, const std::string&)>& work) {
  return with_client(flags, [&](const Client& client) {
    int code = 0;
    for (const std::string& word : words) {
      const int one = work(client, word);
      if (code == 0) code = one;
    }
    return code;
  });
}

bool over_network(const ClientFlags& flags) {
  const auto login = login_of(flags);
  return !server_of(flags).empty() || (login && login->has_value());
}

std::string with_exit_codes(const std::string& examples, const std::string& one,
                            const std::string& more) {
  return fmt::format(
      "Examples:\n{}\n\nExit code: 0 ok, {}2 bad input, 3 not found, 4 no daemon, 5 not allowed{}.",
      examples, one.empty() ? "" : fmt::format("1 {}, ", one), more.empty() ? "" : ", " + more);
}

}  // namespace rubato::cmd
