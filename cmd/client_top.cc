// top: who holds which GPU and how far each job is, painted anew every second.
#include <csignal>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/base/unicode.h"

namespace rubato {
namespace {

struct TopFlags {
  ClientFlags client;
  bool once = false;
  double interval = 1;
};

volatile std::sig_atomic_t stop_asked = 0;  // NOLINT: a signal handler can reach nothing else

// The terminal as this command wants it, and as it was once it ends: keys come at once and are not
// shown, the cursor is hidden, and the screen is one of its own.
class Screen {
 public:
  Screen() {
    struct sigaction action {};
    action.sa_handler = [](int) { stop_asked = 1; };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
    keys_ = ::isatty(STDIN_FILENO) != 0 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (keys_) {
      termios plain = before_;
      plain.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &plain);
    }
    fmt::print("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    fmt::print("\x1b[?25h\x1b[?1049l");
    std::fflush(stdout);
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Line by line over the old frame, so that nothing flickers.
  static void paint(const std::string& frame) {
    std::string out = "\x1b[H";
    for (const char c : frame) {
      if (c == '\n') out += "\x1b[K\r";
      out += c;
    }
    fmt::print("{}\x1b[J", out);
    std::fflush(stdout);
  }

  // False if somebody wants to stop.
  [[nodiscard]] bool wait(double seconds) const {
    pollfd key{keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    const int ready = ::poll(&key, 1, static_cast<int>(seconds * 1000));
    if (stop_asked != 0) return false;
    if (ready <= 0) return true;
    char pressed = 'q';
    const auto got = ::read(STDIN_FILENO, &pressed, 1);
    return got == 1 && pressed != 'q' && pressed != 'Q';
  }

 private:
  bool keys_ = false;
  termios before_{};
};

struct Frame {
  Said said;  // the first error, or ok
  Json nodes;
  Json jobs;
  Json policy;
};

Frame look_at(const Client& client) {
  constexpr const char* kLive = "PENDING,PROFILING,HELD,RUNNING,RESIZING,STOPPING";
  constexpr int kMostJobs = 500;
  Frame frame;
  const std::pair<Json*, Said> parts[] = {{&frame.nodes, client.get("/v1/nodes")},
                                          {&frame.jobs, client.list({kLive, "", kMostJobs})},
                                          {&frame.policy, client.get("/v1/policy")}};
  for (const auto& [json, said] : parts) {
    *json = said.body;
    if (frame.said.ok()) frame.said = said;
  }
  return frame;
}

int rows_of_terminal() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

int live(const TopFlags& flags, const Client& client) {
  Frame first = look_at(client);
  if (!first.said.ok()) return fail(first.said);
  const Screen screen;
  std::string shown;
  for (Frame frame = std::move(first);; frame = look_at(client)) {
    const show::Look look = look_of_terminal();
    const int rows = rows_of_terminal();
    // A daemon that is away comes back; what was seen last stays until then.
    if (frame.said.ok()) {
      shown = show::top(frame.nodes, frame.jobs, frame.policy, look, rows > 2 ? rows - 1 : 0);
      Screen::paint(shown);
    } else {
      Screen::paint(fitted(frame.said.error, std::max(look.columns, 20)) + "\n" +
                    shown.substr(std::min(shown.find('\n') + 1, shown.size())));
    }
    if (!screen.wait(flags.interval)) return 0;
  }
}

int top(const TopFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    if (::isatty(STDOUT_FILENO) != 0 && !flags.once && !flags.client.json)
      return live(flags, client);
    const Frame frame = look_at(client);
    if (!frame.said.ok()) return fail(frame.said);
    if (flags.client.json) {
      const auto part = [](const Json& json, const char* name) {
        return json.is_object() && json.contains(name) ? json[name] : Json();
      };
      print_json({{"nodes", part(frame.nodes, "nodes")},
                  {"jobs", part(frame.jobs, "jobs")},
                  {"policy", part(frame.policy, "policy")}});
      return 0;
    }
    fmt::print("{}", show::top(frame.nodes, frame.jobs, frame.policy, look_of_terminal(), 0));
    return 0;
  });
}

}  // namespace

void add_top(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "top",
      "Watch the cluster: each node's GPUs with the worker that holds each (7.3 is worker 3 of job "
      "7), and the jobs with their progress and their slack before the deadline. q ends it. "
      "Anywhere but on a terminal it prints one frame.");
  auto flags = std::make_shared<TopFlags>();
  command->add_option("--interval", flags->interval, "seconds between two frames")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("-1,--once", flags->once, "one frame and out");
  add_connection(*command, flags->client);
  command->footer(with_exit_codes("  rubato top\n  rubato top --once > now.txt"));
  command->callback([flags, &chosen] { chosen = [flags] { return top(*flags); }; });
}

}  // namespace rubato
