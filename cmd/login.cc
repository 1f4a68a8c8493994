// login and logout: which daemon the other commands speak to.
#include "cmd/login.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <memory>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/base/unicode.h"
#include "rubato/wire/socket.h"

namespace rubato::cmd {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20U;

struct LoginFlags {
  std::string server;
  std::string ca;
  bool json = false;
};

// Does not show what is typed.
class WithoutEcho {
 public:
  WithoutEcho() {
    changed_ = ::isatty(STDIN_FILENO) != 0 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!changed_) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    fmt::print(stderr, "Token: ");
    std::fflush(stderr);
  }
  ~WithoutEcho() {
    if (!changed_) return;
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
    fmt::print(stderr, "\n");
  }
  WithoutEcho(const WithoutEcho&) = delete;
  WithoutEcho& operator=(const WithoutEcho&) = delete;

 private:
  termios before_{};
  bool changed_ = false;
};

std::string read_token_line() {
  const WithoutEcho quiet;
  std::string line;
  std::getline(std::cin, line);
  return std::string(trim(line));
}

int log_in(const LoginFlags& flags) {
  Login login;
  login.server =
      flags.server.find("//") == std::string::npos ? "https://" + flags.server : flags.server;
  auto endpoint = parse_endpoint(login.server);
  if (!endpoint) return bad_input(endpoint.error());
  if (!endpoint->unix_path.empty())
    return bad_input({"a unix socket needs no login: use --state or --server"});
  if (!flags.ca.empty()) {
    auto ca = read_small_file(flags.ca, "--ca");
    if (!ca) return bad_input(ca.error());
    login.ca = std::move(*ca);
  }
  login.token = read_token_line();
  if (login.token.empty())
    return bad_input({"no token on standard input; an admin makes one with `rubato users add`"});
  endpoint->ca = login.ca;
  endpoint->token = login.token;
  const Client client(HttpClient(*endpoint), nullptr);
  const Said said = client.get("/v1/page/session");
  if (!said.ok()) return fail(said);
  if (auto written = write_login(login); !written) return bad_input(written.error());
  if (flags.json) {
    print_json({{"server", login.server},
                {"user", render::text(said.body, "user")},
                {"role", render::text(said.body, "role")}});
    return 0;
  }
  fmt::print("logged in to {} as {} ({})\n", for_terminal(login.server),
             for_terminal(render::text(said.body, "user")),
             for_terminal(render::text(said.body, "role")));
  return 0;
}

int log_out() {
  const auto removed = remove_login();
  if (!removed) return bad_input(removed.error());
  fmt::print("{}\n", *removed ? "logged out; the token itself is still valid until an admin "
                                "revokes it"
                              : "you are not logged in");
  return 0;
}

}  // namespace

Result<std::string> login_path() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return std::string(config) + "/rubato/login.json";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.config/rubato/login.json";
  return Error{"this user has no home directory; set XDG_CONFIG_HOME"};
}

Result<std::string> read_small_file(const std::string& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() == 0 && !file.eof())
    return Error{fmt::format("{} {}: cannot be read: {}", what, path, std::strerror(errno))};
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargestFile) return Error{fmt::format("{} {}: larger than 1 MiB", what, path)};
  return text;
}

Result<std::optional<Login>> read_login() {
  const auto path = login_path();
  struct stat about {};
  // Without a home directory nobody has logged in.
  if (!path || ::stat(path->c_str(), &about) != 0) return std::optional<Login>();
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0 || about.st_uid != ::geteuid()) {
    return Error{fmt::format(
        "{} has a token and must be a file that only you can read: run chmod 600 on it", *path)};
  }
  const auto text = read_small_file(*path, "the login");
  if (!text) return text.error();
  const auto json = parse_json(*text, *path);
  Login login;
  bool good = json && json->is_object();
  for (const auto& [name, value] : {std::pair("server", &login.server), std::pair("ca", &login.ca),
                                    std::pair("token", &login.token)}) {
    good = good && json->contains(name) && (*json)[name].is_string();
    if (good) *value = (*json)[name].get<std::string>();
  }
  if (!good) return Error{fmt::format("{} is damaged: run `rubato login` again", *path)};
  return std::optional<Login>(std::move(login));
}

Result<void> write_login(const Login& login) {
  const auto path = login_path();
  if (!path) return path.error();
  const auto cannot = [&](const std::string& why) {
    return Error{fmt::format("{}: cannot be written: {}", *path, why)};
  };
  std::error_code error;
  const auto folder = std::filesystem::path(*path).parent_path();
  std::filesystem::create_directories(folder, error);
  if (error) return cannot(error.message());
  const std::string text =
      Json{{"server", login.server}, {"ca", login.ca}, {"token", login.token}}.dump(
          2, ' ', true, Json::error_handler_t::replace) +
      "\n";
  const std::string part = fmt::format("{}.{}.part", *path, ::getpid());
  const wire::Fd file(
      ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const bool written = file.valid() && ::write(file.get(), text.data(), text.size()) ==
                                           static_cast<ssize_t>(text.size());
  if (written && ::rename(part.c_str(), path->c_str()) == 0) return {};
  const std::string why = std::strerror(errno);
  ::unlink(part.c_str());
  return cannot(why);
}

Result<bool> remove_login() {
  const auto path = login_path();
  if (!path) return path.error();
  if (::unlink(path->c_str()) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return Error{fmt::format("{}: cannot be removed: {}", *path, std::strerror(errno))};
}

void add_login(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<LoginFlags>();
  auto* command = app.add_subcommand(
      "login",
      "Log in to a daemon on another machine.\n"
      "\n"
      "Reads a token from standard input, checks it, and stores it with the address in a file that "
      "only you can read: login.json in $XDG_CONFIG_HOME/rubato, else in ~/.config/rubato. All "
      "commands then speak to this daemon, unless --server, --state, RUBATO_SERVER or RUBATO_STATE "
      "names another one. An admin makes a token with `rubato users add`.");
  command
      ->add_option(
          "server", flags->server,
          "the daemon: HOST or HOST:PORT, with TLS (default port: 443), or a whole address "
          "such as http://127.0.0.1:8080")
      ->type_name("HOST[:PORT]")
      ->required();
  command
      ->add_option("--ca", flags->ca,
                   "file with the certificate of the authority that signed the daemon's, PEM "
                   "(default: the authorities that this machine trusts). It is stored, too")
      ->type_name("FILE");
  command->add_flag("--json", flags->json, "print the result as JSON instead of text");
  command->footer(
      with_exit_codes("  rubato login cluster.example.org:8443 --ca ca.pem < token\n"
                      "  rubato ls",
                      ""));
  command->callback([flags, &chosen] { chosen = [flags] { return log_in(*flags); }; });
  auto* out = app.add_subcommand(
      "logout", "Forget the daemon that `rubato login` has stored, with its token.");
  out->footer("Exit code: 0 ok, 2 the file could not be removed.");
  out->callback([&chosen] { chosen = [] { return log_out(); }; });
}

}  // namespace rubato::cmd
