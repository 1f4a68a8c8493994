// top: shows which job holds which GPU, and the progress of each job. It redraws the screen every
// second.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/ioctl.h>
#include <termios.h>
#include <thread>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/base/unicode.h"

namespace rubato::cmd {
namespace {

struct TopFlags {
  ClientFlags client;
  bool once = false;
  bool until_idle = false;
  double interval = 1;
  double most = 0;  // seconds; 0: no limit
};

volatile std::sig_atomic_t stop_asked = 0;  // NOLINT: a signal handler can reach nothing else

// Sets up the terminal, and restores it at the end. Keys arrive at once and are not shown, the
// cursor is hidden, and the alternate screen is used.
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

  // Writes line by line over the old frame, so that the screen does not flicker.
  static void paint(const std::string& frame) {
    std::string out = "\x1b[H";
    for (const char c : frame) {
      if (c == '\n') out += "\x1b[K\r";
      out += c;
    }
    fmt::print("{}\x1b[J", out);
    std::fflush(stdout);
  }

  // False if the user wants to stop: a signal, or the key q.
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
  if (!frame.jobs.is_object() || !frame.jobs["jobs"].is_array())
    frame.jobs = {{"jobs", Json::array()}};
  return frame;
}

// Asks for the state again and again. Jobs that have ended since the first frame stay in the list,
// so that the user sees how they ended.
class Watch {
 public:
  Watch(const TopFlags& flags, const Client& client)
      : flags_(flags), client_(client), began_(std::chrono::steady_clock::now()) {}

  Frame look() {
    Frame frame = look_at(client_);
    if (!frame.said.ok()) return frame;
    std::set<std::string> now;
    for (const Json& job : frame.jobs["jobs"]) now.insert(render::count(job, "id"));
    idle_ = now.empty();
    std::vector<std::string> gone;
    std::set_difference(live_.begin(), live_.end(), now.begin(), now.end(),
                        std::back_inserter(gone));
    live_ = std::move(now);
    for (const std::string& id : gone) {
      const Said job = client_.get(job_target(id));
      if (job.ok()) ended_.push_back(job.body);
    }
    while (ended_.size() > kMostEnded) ended_.pop_front();
    for (const Json& job : ended_) frame.jobs["jobs"].push_back(job);
    return frame;
  }
  void forget_ended() { ended_.clear(); }

  [[nodiscard]] bool over() const {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began_;
    return (flags_.until_idle && idle_) || (flags_.most > 0 && since.count() >= flags_.most);
  }

 private:
  static constexpr std::size_t kMostEnded = 8;
  const TopFlags& flags_;
  const Client& client_;
  std::chrono::steady_clock::time_point began_;
  std::set<std::string> live_;
  std::deque<Json> ended_;
  bool idle_ = false;
};

int rows_of_terminal() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

// Runs until the user stops it or the watch is over. In the second case the last frame stays on the
// terminal.
int live(const TopFlags& flags, const Client& client) {
  Watch watch(flags, client);
  Frame frame = watch.look();
  if (!frame.said.ok()) return fail(frame.said);
  std::string shown;
  {
    const Screen screen;
    for (;; frame = watch.look()) {
      const render::Look look = look_of_terminal();
      const int rows = rows_of_terminal();
      // The daemon may come back. Until then the last frame stays on the screen, below the error.
      if (frame.said.ok()) {
        shown = render::top(frame.nodes, frame.jobs, frame.policy, look, rows > 2 ? rows - 1 : 0);
        Screen::paint(shown);
      } else {
        Screen::paint(fitted(frame.said.error, std::max(look.columns, 20)) + "\n" +
                      shown.substr(std::min(shown.find('\n') + 1, shown.size())));
      }
      if (watch.over()) break;
      if (!screen.wait(flags.interval)) return 0;
    }
  }
  fmt::print("{}", shown);
  return 0;
}

// For a log file: prints lines when something has changed, but not too often, and the progress now
// and then.
int log_changes(const TopFlags& flags, const Client& client) {
  constexpr std::chrono::milliseconds kBetween{2500};
  constexpr std::chrono::seconds kAtLeast{10};
  Watch watch(flags, client);
  std::string told;
  std::string trouble;
  std::optional<std::chrono::steady_clock::time_point> last;
  while (true) {
    const Frame frame = watch.look();
    if (!frame.said.ok() && !last) return fail(frame.said);
    if (!frame.said.ok() && frame.said.error != trouble) static_cast<void>(fail(frame.said));
    trouble = frame.said.error;
    const auto now = std::chrono::steady_clock::now();
    const std::string gist = render::top_gist(frame.nodes, frame.jobs);
    const bool due = !last || watch.over() || now - *last >= kAtLeast ||
                     (gist != told && now - *last >= kBetween);
    if (frame.said.ok() && due) {
      fmt::print("{}", render::top_lines(frame.nodes, frame.jobs, look_of_terminal()));
      if (std::fflush(stdout) != 0) return 0;  // nobody reads any more
      watch.forget_ended();
      told = gist;
      last = now;
    }
    if (watch.over()) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(flags.interval));
  }
}

int one_frame(const TopFlags& flags, const Client& client) {
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
  fmt::print("{}", render::top(frame.nodes, frame.jobs, frame.policy, look_of_terminal(), 0));
  return 0;
}

int top(const TopFlags& flags) {
  const bool goes_on = flags.until_idle || flags.most > 0;
  const bool once = flags.once || flags.client.json;
  if (goes_on && once)
    return bad_input({"--until-idle and --for need more than the one frame of --once and --json"});
  return with_client(flags.client, [&](const Client& client) {
    if (once) return one_frame(flags, client);
    if (::isatty(STDOUT_FILENO) != 0) return live(flags, client);
    return goes_on ? log_changes(flags, client) : one_frame(flags, client);
  });
}

}  // namespace

void add_top(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "top",
      "Watch the nodes, the GPUs and the jobs. For each GPU, top shows the worker that holds it "
      "(7.3 "
      "is worker 3 of job 7). For each job, it shows the progress and the slack before the "
      "deadline. "
      "The key q ends it. Without a terminal, top prints one frame. With --until-idle or --for, it "
      "prints a few lines whenever something has changed.");
  auto flags = std::make_shared<TopFlags>();
  command->add_option("--interval", flags->interval, "time between two frames, 0.1 to 3600")
      ->type_name("SECONDS")
      ->check(from_to(0.1, 3600))
      ->capture_default_str();
  command->add_flag("-1,--once", flags->once, "print one frame and exit");
  command->add_flag("--until-idle", flags->until_idle, "exit when no job waits, runs or is held");
  command->add_option("--for", flags->most, "exit after this time")
      ->type_name("SECONDS")
      ->check(above_zero());
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato top\n  rubato top --once > now.txt\n"
                      "  rubato top --until-idle | tee day.log",
                      ""));
  command->callback([flags, &chosen] { chosen = [flags] { return top(*flags); }; });
}

}  // namespace rubato::cmd
