// A whole training job without torch, for tests: a toy model, a worker that trains it with a real
// Session, and a toy launcher that starts each worker as a process and talks to it through a real
// socket. Deaths are real, too: a worker that dies is a process that was killed.
//
// The test's process must not have started threads, because it forks.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "rubato/elastic/kernels.h"
#include "rubato/elastic/samples.h"
#include "rubato/elastic/session.h"
#include "rubato/elastic/tree.h"

namespace rubato::elastic {

// --- the model ---

struct ToySize {
  std::vector<std::size_t> parameters{3000, 70, 9000, 1, 5000};
  std::size_t tail = 1;  // reduced with the gradient, but not part of the state
  std::size_t bucket_floats = 6000;
  int leaves = 8;
};

// Parameters with momentum. The gradient of a leaf is a function of the parameters, the step and
// the leaf. So an error in any step stays visible in all later steps.
class ToyModel {
 public:
  explicit ToyModel(const ToySize& size)
      : layout_(make_layout(size.parameters, size.tail, size.bucket_floats)),
        weights_(layout_.total),
        momentum_(layout_.total),
        leaf_(layout_.total) {
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] = noise(i, 0, 0);
  }

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] int chunks() const { return static_cast<int>(layout_.parameters.size()); }

  [[nodiscard]] std::vector<float*> slots(int count) {
    while (static_cast<int>(slots_.size()) < count) slots_.emplace_back(layout_.total);
    std::vector<float*> slots;
    for (int i = 0; i < count; ++i) slots.push_back(slots_[static_cast<std::size_t>(i)].data());
    return slots;
  }

  // Adds the part of the leaf's gradient that lies in one bucket to the slots.
  void add_leaf(member::Step step, const LeafStep& leaf, int bucket) {
    const Piece& piece = layout_.buckets[static_cast<std::size_t>(bucket)];
    for (std::size_t i = piece.offset; i < piece.offset + piece.count; ++i) {
      leaf_[i] = 0.125F * weights_[i] + noise(i, step, leaf.leaf + 1);
    }
    const auto part = [&](int slot) {
      return std::span(slots_[static_cast<std::size_t>(slot)]).subspan(piece.offset, piece.count);
    };
    const std::span<const float> gradient = std::span(leaf_).subspan(piece.offset, piece.count);
    if (leaf.fresh) {
      copy(part(leaf.slot), gradient);
    } else {
      add(part(leaf.slot), gradient);
    }
    for (int slot = leaf.merge_from; slot > leaf.merge_to; --slot) add(part(slot - 1), part(slot));
  }

  void apply(std::span<const float> gradient, const std::vector<bool>& held) {
    for (std::size_t parameter = 0; parameter < layout_.parameters.size(); ++parameter) {
      if (!held.at(parameter)) continue;
      const Piece& piece = layout_.parameters[parameter];
      for (std::size_t i = piece.offset; i < piece.offset + piece.count; ++i) {
        momentum_[i] = 0.75F * momentum_[i] + gradient[i];
        weights_[i] -= 0.015625F * momentum_[i];
      }
    }
  }

  [[nodiscard]] StateChunk chunk(int index) const {
    return {fmt::format("parameter {}", index),
            {part_of(weights_, index), part_of(momentum_, index)}};
  }
  void load(const ReceivedChunk& chunk) {
    const auto weights = part_of(weights_, chunk.index);
    const auto momentum = part_of(momentum_, chunk.index);
    if (chunk.head != fmt::format("parameter {}", chunk.index) ||
        chunk.body.size() != weights.size() + momentum.size()) {
      throw std::runtime_error(fmt::format("chunk {} is not what was sent", chunk.index));
    }
    const std::size_t offset = layout_.parameters[static_cast<std::size_t>(chunk.index)].offset;
    std::memcpy(weights_.data() + offset, chunk.body.data(), weights.size());
    std::memcpy(momentum_.data() + offset, chunk.body.data() + weights.size(), momentum.size());
  }

  [[nodiscard]] std::string digest() const {
    const std::uint64_t half = hash(std::as_bytes(std::span(weights_)), 1);
    return fmt::format("{:016x}", hash(std::as_bytes(std::span(momentum_)), half));
  }

 private:
  static float noise(std::size_t element, std::int64_t step, int leaf) {
    auto bits = static_cast<std::uint32_t>(element) * 2654435761U +
                static_cast<std::uint32_t>(step) * 40503U + static_cast<std::uint32_t>(leaf) * 977U;
    bits ^= bits >> 15U;
    bits *= 2246822519U;
    return static_cast<float>(bits >> 8U) / static_cast<float>(1U << 24U) - 0.5F;
  }
  [[nodiscard]] std::span<const std::byte> part_of(const std::vector<float>& all, int index) const {
    const Piece& piece = layout_.parameters[static_cast<std::size_t>(index)];
    return std::as_bytes(std::span(all).subspan(piece.offset, piece.count));
  }

  Layout layout_;
  std::vector<float> weights_;
  std::vector<float> momentum_;
  std::vector<float> leaf_;
  std::vector<std::vector<float>> slots_;
};

// The same training by a plain loop: no Session, no socket, no thread.
class PlainLoop {
 public:
  explicit PlainLoop(const ToySize& size) : size_(size), model_(size) {
    digests_.push_back(model_.digest());
  }

  // The digest of the state after `step`.
  [[nodiscard]] std::string digest_after(member::Step step) {
    while (static_cast<member::Step>(digests_.size()) <= step) {
      train(static_cast<member::Step>(digests_.size()));
    }
    return digests_[static_cast<std::size_t>(step)];
  }

 private:
  void train(member::Step step) {
    const SummationOrder range = summation_order(0, size_.leaves);
    const std::vector<float*> slots = model_.slots(range.slots);
    const std::size_t total = model_.layout().total;
    for (const LeafStep& leaf : range.steps) {
      for (int bucket = 0; bucket <= model_.layout().tail(); ++bucket) {
        model_.add_leaf(step, leaf, bucket);
      }
    }
    for (const Addition& addition : finish_tree(range.subtrees)) {
      add({slots[static_cast<std::size_t>(addition.into)], total},
          {slots[static_cast<std::size_t>(addition.from)], total});
    }
    model_.apply({slots[0], total},
                 std::vector<bool>(static_cast<std::size_t>(model_.chunks()), true));
    digests_.push_back(model_.digest());
  }

  ToySize size_;
  ToyModel model_;
  std::vector<std::string> digests_;
};

// --- a worker ---

// A private line from a worker to the test, apart from everything that is tested. It blocks, so it
// can be used from any thread at any moment.
class TestLine {
 public:
  TestLine() = default;
  explicit TestLine(wire::Fd fd) : fd_(std::make_shared<wire::Fd>(std::move(fd))) {}

  [[nodiscard]] int fd() const { return fd_ == nullptr ? -1 : fd_->get(); }
  void tell(const Json& message) const {
    if (fd_ == nullptr) return;
    const std::string frame = wire::to_frame(message);
    if (::send(fd_->get(), frame.data(), frame.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(frame.size())) {
      std::abort();
    }
  }
  // Waits until the test lets this worker continue.
  void wait() const {
    char byte = 0;
    if (::recv(fd_->get(), &byte, 1, 0) != 1) std::abort();
  }

 private:
  std::shared_ptr<wire::Fd> fd_;
};

[[noreturn]] inline void die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

struct ToyOptions {
  ToySize size;
  bool report_steps = true;
  std::string build = "toy";
  TestLine line;  // given by the launcher

  // A test may set what happens at these moments, on the trainer's thread.
  std::function<void(const Session::Work&)> before_computing;
  std::function<void(const Session::Work&, int bucket)> after_bucket;
  std::function<void(const Session::Work&, member::Word&)> before_word;
  std::function<void(const Session::Work&)> after_word;
  std::function<void(const Session::Completed&)> before_applying;
  std::function<void(Session&, const Session::Work&)> instead_of_computing;
  // On the network's thread of the leader: whether this is the last step. Without it, the job
  // continues until it is told to stop.
  std::function<bool(const StepPlan&)> last_step;
  // On the network's thread: a worker that started later has connected to this one.
  std::function<void()> when_dialled;
};

class ToyWorker {
 public:
  ToyWorker(member::Place place, ToyOptions options)
      : options_(std::move(options)), uid_(place.uid), model_(options_.size) {
    Session::Config config;
    config.place = std::move(place);
    config.identity = {options_.build, Json::object()};
    config.layout = model_.layout();
    config.difference = [this](const member::Identity& theirs) -> std::string {
      if (options_.when_dialled) options_.when_dialled();
      return theirs.build == options_.build ? "" : "another build";
    };
    session_ = std::make_unique<Session>(std::move(config));
  }

  // Returns the exit code.
  int run() {
    if (Result<void> started = session_->start(); !started) {
      options_.line.tell({{"failed", started.error().message}});
      return wire::kFailed;
    }
    while (!exit_code_) {
      Session::Event event = session_->next();
      std::visit([this](auto& e) { on(e); }, event);
    }
    session_->close();
    return *exit_code_;
  }

  [[nodiscard]] std::string digest() const { return model_.digest(); }
  [[nodiscard]] member::Step applied() const { return applied_; }

 private:
  [[nodiscard]] bool complete() const {
    return std::find(held_.begin(), held_.end(), false) == held_.end();
  }

  void on(Session::Found&) {
    held_.assign(static_cast<std::size_t>(model_.chunks()), true);
    StepPlan first;
    first.samples = options_.size.leaves;
    first.leaves = options_.size.leaves;
    session_->found(first, {});
  }
  void on(Session::Adopted& adopted) {
    options_.line.tell({{"adopted", uid_}, {"about", adopted.about}});
    held_.assign(static_cast<std::size_t>(model_.chunks()), false);
  }
  void on(Session::Interrupted&) {}

  void on(Session::Work& work) {
    if (work.role != Role::working) return;
    if (options_.before_computing) options_.before_computing(work);
    if (options_.instead_of_computing) return options_.instead_of_computing(*session_, work);
    member::Word word;
    if (work.plan.digest) word.digest = model_.digest();
    if (!compute(work)) return;
    for (int leaf = work.range.first; leaf < work.range.last; ++leaf) {
      word.mark += sample_mark(work.plan.epoch, work.plan.cursor + leaf);
    }
    word.leaves = work.range.size();
    if (options_.before_word) options_.before_word(work, word);
    session_->say(work.attempt, std::move(word),
                  [this, plan = work.plan](int) { return next_plan(plan); });
    if (options_.after_word) options_.after_word(work);
  }

  // Sends buckets while later ones are still computed, as in a real backward pass.
  bool compute(const Session::Work& work) {
    const SummationOrder range = summation_order(work.range.first, work.range.last);
    std::vector<float*> sums = model_.slots(range.slots);
    sums.resize(range.subtrees.size());
    for (const LeafStep& leaf : range.steps) {
      if (session_->interrupted(work.attempt)) return false;
      for (int bucket = 0; bucket <= model_.layout().tail(); ++bucket) {
        model_.add_leaf(work.plan.step, leaf, bucket);
        if (leaf.leaf + 1 != work.range.last) continue;
        session_->bucket_ready(work.attempt, bucket, sums);
        if (options_.after_bucket) options_.after_bucket(work, bucket);
      }
    }
    return true;
  }

  // On the network's thread, while this one waits in next().
  StepPlan next_plan(const StepPlan& plan) {
    StepPlan next = plan;
    ++next.step;
    if (!plan.finish) next.cursor += plan.samples;
    next.stopped = plan.stopped || session_->stop_requested();
    next.finish = next.stopped || plan.finish || (options_.last_step && options_.last_step(plan));
    next.digest = next.finish || next.step % 3 == 0;
    return next;
  }

  void on(Session::Completed& completed) {
    if (options_.before_applying) options_.before_applying(completed);
    if (completed.plan.finish) return finish(completed);
    if (completed.role == Role::leaving) return;
    for (const ReceivedChunk& chunk : completed.chunks) {
      model_.load(chunk);
      held_[static_cast<std::size_t>(chunk.index)] = true;
    }
    apply(completed.plan, completed.result);
    std::vector<StateChunk> chunks;
    for (int i = 0; completed.feeding && i < model_.chunks(); ++i)
      chunks.push_back(model_.chunk(i));
    session_->applied(completed.plan.step, std::move(chunks), complete(), uid_);
  }
  void on(Session::CatchUp& catch_up) {
    apply(catch_up.plan, catch_up.result);
    options_.line.tell({{"caught_up", catch_up.plan.step}});
    session_->caught_up(catch_up.plan.step);
  }
  void apply(const StepPlan& plan, std::span<const float> gradient) {
    model_.apply(gradient, held_);
    applied_ = plan.step;
    if (!complete() || !options_.report_steps) return;
    session_->report({{"uid", uid_}, {"step", plan.step}, {"digest", model_.digest()}});
  }

  void finish(const Session::Completed& completed) {
    exit_code_ = completed.plan.stopped ? wire::kLeft : wire::kFinished;
    if (completed.role != Role::working) return;
    options_.line.tell({{"finished", completed.plan.step - 1},
                        {"digest", model_.digest()},
                        {"used_mark", completed.plan.used_mark}});
  }
  void on(Session::End& end) {
    options_.line.tell({{"end", end.code}, {"why", end.why}});
    exit_code_ = end.code;
  }

  ToyOptions options_;
  member::Uid uid_;
  ToyModel model_;
  std::vector<bool> held_;
  member::Step applied_ = 0;
  std::optional<int> exit_code_;
  std::unique_ptr<Session> session_;  // last member: its thread uses the members above
};

// --- the launcher ---

class ToyJob {
 public:
  struct Ended {
    int code = -1;   // exit code
    int signal = 0;  // the signal that killed it
  };
  struct Process {
    int pid = 0;
    bool founder = false;
    bool said_hello = false;
    std::string address;
    wire::FrameStream launcher;  // this job's end of the worker's connection
    wire::FrameStream line;
    std::vector<Json> reports;
    std::vector<wire::Notice> notices;
    std::vector<Json> told;  // what it said on the private line
    std::optional<Ended> ended;
  };

  explicit ToyJob(const ToySize& size) : plain_loop_(size) {
    std::string name = (std::filesystem::temp_directory_path() / "rubato-job-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    directory_ = name;
    address_ = "unix:" + directory_ + "/launcher";
    Result<wire::Fd> listener = wire::listen_on(address_);
    if (!listener) throw std::runtime_error(listener.error().message);
    listener_ = std::move(*listener);
  }
  ToyJob(const ToyJob&) = delete;
  ToyJob& operator=(const ToyJob&) = delete;
  ~ToyJob() {
    for (auto& [uid, process] : workers_) {
      if (!process.ended) {
        ::kill(process.pid, SIGKILL);
        ::waitpid(process.pid, nullptr, 0);
      }
    }
    std::filesystem::remove_all(directory_);
  }

  // The first worker of a job starts the job.
  void start(member::Uid uid, ToyOptions options) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error("no socket pair");
    }
    Process& process = workers_[uid];
    process.founder = workers_.size() == 1;
    std::fflush(nullptr);
    process.pid = ::fork();
    if (process.pid < 0) throw std::runtime_error("cannot fork");
    if (process.pid == 0) {
      close_all_but(ends[1]);
      line_ = TestLine(wire::Fd(ends[1]));
      options.line = line_;
      member::Place place;
      place.launcher = address_;
      place.uid = uid;
      place.token = kToken;
      int code = wire::kFailed;
      {
        ToyWorker worker(place, std::move(options));
        code = worker.run();
      }
      std::exit(code);  // not _exit: the leak check runs at exit
    }
    ::close(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    process.line = wire::FrameStream(wire::Fd(ends[0]));
  }

  // Sets which workers should train from now on.
  void plan(std::vector<member::Uid> uids) {
    plan_ = {plan_.number + 1, std::move(uids)};
    for (auto& [uid, process] : workers_) send(process, plan_);
  }
  void stop() {
    for (auto& [uid, process] : workers_) send(process, wire::Stop{});
  }
  // Returns when the process is gone.
  void kill(member::Uid uid) {
    ::kill(workers_.at(uid).pid, SIGKILL);
    wait_for_end(uid);
  }
  void let_go(member::Uid uid) {
    if (::send(workers_.at(uid).line.fd(), "g", 1, MSG_NOSIGNAL) != 1) {
      throw std::runtime_error("the line is cut");
    }
  }
  // For the workers, the launcher is gone.
  void vanish() {
    listener_.close();
    connections_.clear();
    for (auto& [uid, process] : workers_) process.launcher.close();
  }

  // Handles messages of workers until the condition is true. Each state that a worker reports on
  // the way must be that of the plain loop.
  void until(const std::string& what, const std::function<bool()>& condition) {
    // No test depends on this time. It ends a test that would hang.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > patience) {
        throw std::runtime_error(fmt::format("waited for ever until {}\n{}", what, describe()));
      }
      turn();
    }
  }
  void wait_for_end(member::Uid uid) {
    until(fmt::format("worker {} ends", uid), [&] { return workers_.at(uid).ended.has_value(); });
    turn();  // its last messages
  }

  // In a worker's process: its own line.
  [[nodiscard]] const TestLine& line() const { return line_; }

  [[nodiscard]] bool has(member::Uid uid) const { return workers_.contains(uid); }
  [[nodiscard]] const Process& worker(member::Uid uid) const { return workers_.at(uid); }
  [[nodiscard]] member::Step reported(member::Uid uid) const {
    const std::vector<Json>& reports = worker(uid).reports;
    return reports.empty() ? -1 : reports.back().at("step").get<member::Step>();
  }
  // The newest list of working members that any worker has announced.
  [[nodiscard]] bool working(const std::vector<member::Uid>& uids) const {
    return announced_ && announced_->working() == uids && announced_->members.size() == uids.size();
  }
  [[nodiscard]] std::optional<Json> told(member::Uid uid, const std::string& key) const {
    for (const Json& message : worker(uid).told) {
      if (message.contains(key)) return message;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool noticed(member::Uid uid, const std::string& kind) const {
    const auto& notices = worker(uid).notices;
    return std::any_of(notices.begin(), notices.end(),
                       [&](const wire::Notice& notice) { return notice.kind == kind; });
  }
  [[nodiscard]] PlainLoop& plain_loop() { return plain_loop_; }

  [[nodiscard]] std::string describe() const {
    std::string text;
    for (const auto& [uid, process] : workers_) {
      text += fmt::format(
          "worker {}: reported {}, ended {}", uid, reported(uid),
          process.ended ? fmt::format("{}/{}", process.ended->code, process.ended->signal) : "no");
      for (const wire::Notice& notice : process.notices) {
        text += fmt::format("\n  {} {}", notice.kind, notice.content.dump());
      }
      for (const Json& told : process.told) text += fmt::format("\n  told {}", told.dump());
      text += '\n';
    }
    return text;
  }

 private:
  static constexpr const char* kToken = "token";

  // A worker must not inherit open files of the launcher, as after exec.
  static void close_all_but(int kept) {
    std::vector<int> open;
    DIR* folder = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(folder)) open.push_back(std::atoi(entry->d_name));
    ::closedir(folder);
    for (const int fd : open) {
      if (fd > STDERR_FILENO && fd != kept) ::close(fd);
    }
  }

  void send(Process& process, const wire::FromLauncher& message) {
    if (process.said_hello && process.launcher.open())
      process.launcher.send(wire::to_json(message));
  }

  // Waits until something happens, and handles all messages.
  void turn() {
    std::vector<pollfd> waiting;
    const auto wait_for = [&](int fd) {
      if (fd >= 0) waiting.push_back({fd, POLLIN, 0});
    };
    wait_for(listener_.get());
    for (const wire::FrameStream& connection : connections_) wait_for(connection.fd());
    for (const auto& [uid, process] : workers_) {
      wait_for(process.launcher.fd());
      wait_for(process.line.fd());
    }
    // Short, because the ends of processes are checked between two calls.
    ::poll(waiting.data(), waiting.size(), 20);
    look_for_ended();
    if (listener_.valid()) {
      for (wire::Fd fd = wire::accept_from(listener_); fd.valid();
           fd = wire::accept_from(listener_)) {
        connections_.emplace_back(std::move(fd));
      }
    }
    hear_strangers();
    for (auto& [uid, process] : workers_) {
      if (process.launcher.open()) hear(process, process.launcher.receive());
      if (!process.line.open()) continue;
      for (Json& message : process.line.receive()) process.told.push_back(std::move(message));
    }
  }

  void look_for_ended() {
    for (auto& [uid, process] : workers_) {
      int status = 0;
      if (process.ended || ::waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
      process.ended = Ended{WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                            WIFSIGNALED(status) ? WTERMSIG(status) : 0};
      const std::set<int> expected{wire::kFinished, wire::kLeft, wire::kRefused, wire::kJobFailed};
      if (process.ended->signal != SIGKILL && !expected.contains(process.ended->code)) {
        throw std::runtime_error(fmt::format("worker {} broke down\n{}", uid, describe()));
      }
    }
  }

  void hear_strangers() {
    for (auto it = connections_.begin(); it != connections_.end();) {
      std::vector<Json> messages = it->receive();
      if (messages.empty()) {
        it = it->open() ? std::next(it) : connections_.erase(it);
        continue;
      }
      const auto first = wire::parse_from_worker(messages.front());
      if (!first) throw std::runtime_error(first.error().message);
      const auto& hello = std::get<wire::Hello>(*first);
      Process& process = workers_.at(hello.uid);
      if (hello.token != kToken || hello.pid != process.pid)
        throw std::runtime_error("a bad hello");
      process.launcher = std::move(*it);
      it = connections_.erase(it);
      welcome(hello, process);
      messages.erase(messages.begin());
      hear(process, messages);
    }
  }

  void welcome(const wire::Hello& hello, Process& process) {
    wire::Welcome welcome{{}, plan_, process.founder};
    for (const auto& [uid, other] : workers_) {
      if (other.said_hello && !other.ended) welcome.peers.push_back({uid, other.address});
    }
    process.address = hello.address;
    process.said_hello = true;
    send(process, welcome);
  }

  void hear(Process& process, const std::vector<Json>& messages) {
    for (const Json& json : messages) {
      const auto message = wire::parse_from_worker(json);
      if (!message) throw std::runtime_error(message.error().message);
      if (const auto* report = std::get_if<wire::Report>(&*message)) {
        const auto step = report->content.at("step").get<member::Step>();
        if (report->content.at("digest") != plain_loop_.digest_after(step)) {
          throw std::runtime_error(
              fmt::format("worker {} differs from the plain loop after step {}\n{}",
                          report->content.at("uid").dump(), step, describe()));
        }
        process.reports.push_back(report->content);
      }
      if (const auto* notice = std::get_if<wire::Notice>(&*message)) {
        process.notices.push_back(*notice);
        if (notice->kind == "members") note_members(notice->content.get<Record>());
      }
    }
  }
  void note_members(const Record& record) {
    if (!announced_ || !announced_->newer_than(record)) announced_ = record;
  }

  PlainLoop plain_loop_;
  std::string directory_;
  std::string address_;
  wire::Fd listener_;
  wire::MembershipPlan plan_{1, {1}};
  std::vector<wire::FrameStream> connections_;  // connections without a hello so far
  std::map<member::Uid, Process> workers_;
  std::optional<Record> announced_;
  TestLine line_;
};

}  // namespace rubato::elastic
