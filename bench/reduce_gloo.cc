// Compares all-reduce of 100 MB of gradients between processes on this machine: gloo's ring, our
// tree (elastic/reduction.h), and our tree over encrypted connections. All use TCP, in the same
// processes and in turns, so that other load on the machine affects all.
//
//   build/bench/reduce_gloo [--json] [--repetitions 15] [--floats 25000000] [--bucket-bytes
//   8388608] [--hosts PID=ADDRESS,...]
//
// The processes are on loopback, or in the networks of the processes PID, each on one of its own or
// several on each (bench/links.py). Then connections inside a host are plain, as in a job, and the
// bytes that each host's eth0 sends and receives are counted. A time is from the start of the first
// process to the end of the last. Processor time is that of all processes. Every result of ours is
// compared with a serial sum in the order of the tree, bit by bit. So all shapes give the same
// bits. gloo sums in the order of its ring; its result is compared with a tolerance.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <new>
#include <numeric>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/json.h"
#include "rubato/elastic/reduction.h"
#include "rubato/wire/poller.h"

namespace rubato::bench {
namespace {

using Clock = std::chrono::steady_clock;
using elastic::Uid;

constexpr int kLeaves = 8;
constexpr int kMostProcesses = 8;
constexpr int kMostRepetitions = 1000;

enum Way : std::size_t { kGloo, kPlain, kTls };
constexpr std::size_t kWays = 3;

struct Host {
  std::string network{};  // empty: this one
  std::string address = "127.0.0.1";
};

// How many processes are on which hosts.
using Shape = std::vector<int>;

struct Settings {
  bool json = false;
  std::vector<Host> all_hosts{};
  std::vector<Host> hosts{};  // of the processes of the shape that is measured
  int repetitions = 15;
  std::size_t floats = 25'000'000;
  std::size_t bucket_bytes = std::size_t{8} << 20U;
};

// Shared memory of the processes: a barrier that sleeps, the start and end of each, and the
// results.
struct Shared {
  pthread_barrier_t barrier;
  std::atomic<int> wrong;
  double begin[kMostProcesses];
  double end[kMostProcesses];
  double processor[kMostProcesses];
  double bytes[kMostProcesses];
  double took[kWays][kMostRepetitions];
  double used[kWays][kMostRepetitions];  // processor seconds
  double most[kWays][kMostRepetitions];  // bytes, of the busiest host and direction
};

struct Traffic {
  double received = 0;
  double sent = 0;
};

// Of the host of this process.
Traffic traffic() {
  std::ifstream file("/proc/thread-self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const auto name = line.find("eth0:");
    if (name == std::string::npos) continue;
    std::istringstream numbers(line.substr(name + 5));
    std::array<double, 9> columns{};
    for (double& column : columns) numbers >> column;
    return {columns[0], columns[8]};
  }
  return {};
}

double processor_seconds() {
  rusage usage{};
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Sockets belong to the network in which they are made.
void enter_network(const std::string& network) {
  if (network.empty()) return;
  const wire::Fd file(open(network.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() || setns(file.get(), CLONE_NEWNET) != 0) {
    fmt::print(stderr, "reduce_gloo: cannot enter the network of {}; this needs root\n", network);
    std::exit(1);
  }
}

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

Shared& share(int processes) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* shared = new (memory) Shared{};
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, static_cast<unsigned>(processes));
  return *shared;
}

// A leaf's gradient: any floats whose sum depends on the order.
float leaf_value(int leaf, std::size_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(leaf);
  x ^= x >> 15U;
  x *= 2246822519U;
  x ^= x >> 13U;
  return static_cast<float>(static_cast<std::int32_t>(x)) * 1e-9F;
}

float tree_value(int first, int size, std::size_t i) {
  if (size == 1) return leaf_value(first, i);
  return tree_value(first, size / 2, i) + tree_value(first + size / 2, size / 2, i);
}

// One way of ours: its connections and its reduction.
struct Tree {
  Tree(wire::Poller& poller, Uid self, const elastic::Layout& layout)
      : transport(poller,
                  {[this](Uid from, const elastic::Header& h) { return reduction->where(from, h); },
                   [this](Uid from, const elastic::Header& h) { reduction->arrived(from, h); },
                   [](Uid) { CHECK(!"a peer is gone"); }}),
        reduction(elastic::make_tree_reduction(self, layout, transport)) {}

  elastic::Transport transport;
  std::unique_ptr<elastic::Reduction> reduction;
};

wire::LinkKey key() {
  wire::LinkKey made{.identity = "reduce"};
  made.secret.fill(7);
  return made;
}

class Member {
 public:
  Member(const Settings& settings, Shared& shared, int rank, int processes)
      : settings_(settings),
        shared_(shared),
        rank_(rank),
        processes_(processes),
        layout_(layout_of(settings)),
        plain_(poller_, rank + 1, layout_),
        tls_(poller_, rank + 1, layout_),
        result_(layout_.total) {
    for (int i = 0; i < processes; ++i) {
      geometry_.working.push_back(i + 1);
      geometry_.hosts.push_back(settings.hosts[static_cast<std::size_t>(i)].network);
    }
    geometry_.leaves = kLeaves;
    geometry_.result = result_;
    const elastic::Range range = geometry_.ranges()[static_cast<std::size_t>(rank)];
    for (const elastic::Subtree& part :
         elastic::summation_order(range.first, range.last).subtrees) {
      std::vector<float>& sum = original_.emplace_back(layout_.total);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = tree_value(part.first, part.size, i);
    }
    sums_ = original_;
    expected_.resize(layout_.total);
    for (std::size_t i = 0; i < layout_.total; ++i) expected_[i] = tree_value(0, kLeaves, i);
  }

  // Two connections to each process: the lower rank listens, and the caller says who it is, and
  // whether the connection is the encrypted one.
  void connect(const wire::Fd& listener, const std::vector<std::string>& addresses) {
    for (int peer = 0; peer < rank_; ++peer) {
      for (const bool encrypted : {false, true}) {
        Result<wire::Fd> fd = wire::connect_to(addresses[static_cast<std::size_t>(peer)]);
        CHECK(static_cast<bool>(fd));
        pollfd ready{fd->get(), POLLOUT, 0};
        const std::array<char, 2> name{static_cast<char>(rank_), static_cast<char>(encrypted)};
        CHECK(poll(&ready, 1, 10'000) == 1 && write(fd->get(), name.data(), 2) == 2);
        Tree& tree = encrypted ? tls_ : plain_;
        tree.transport.connect(peer + 1, encrypted && !is_near(peer)
                                             ? wire::Link(std::move(*fd), key())
                                             : wire::Link(std::move(*fd)));
      }
    }
    for (int callers = 2 * (rank_ + 1); callers < 2 * processes_; ++callers) {
      pollfd ready{listener.get(), POLLIN, 0};
      CHECK(poll(&ready, 1, 10'000) == 1);
      wire::Fd fd = wire::accept_from(listener);
      ready.fd = fd.get();
      std::array<char, 2> name{};
      CHECK(poll(&ready, 1, 10'000) == 1 && read(fd.get(), name.data(), 2) == 2);
      const auto find = [](std::string_view) { return std::optional(key()); };
      Tree& tree = name[1] != 0 ? tls_ : plain_;
      tree.transport.connect(name[0] + 1, name[1] != 0 && !is_near(name[0])
                                              ? wire::Link(std::move(fd), find)
                                              : wire::Link(std::move(fd)));
    }
  }

  void connect_gloo(const std::string& directory) {
    gloo::rendezvous::FileStore store(directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, processes_);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = settings_.hosts[static_cast<std::size_t>(rank_)].address;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    gloo_ = context;
  }

  void run() {
    for (int i = -2; i < settings_.repetitions; ++i) {  // the first two warm up
      restore();
      add_up_own();
      timed(kGloo, i, [&] { reduce_gloo(); });
      look(false);
      for (const Way way : {kPlain, kTls}) {
        restore();
        timed(way, i, [&] { reduce(way == kTls ? tls_ : plain_, i + 2); });
        look(true);
      }
    }
  }

 private:
  static elastic::Layout layout_of(const Settings& settings) {
    // One tensor per bucket, and a small tail like a loss.
    const std::size_t bucket = settings.bucket_bytes / sizeof(float);
    std::vector<std::size_t> counts;
    for (std::size_t left = settings.floats; left > 0; left -= counts.back()) {
      counts.push_back(std::min(left, bucket));
    }
    return elastic::make_layout(counts, 1, bucket);
  }

  // On the same host.
  [[nodiscard]] bool is_near(int peer) const {
    const std::string& network = settings_.hosts[static_cast<std::size_t>(rank_)].network;
    return !network.empty() && network == settings_.hosts[static_cast<std::size_t>(peer)].network;
  }

  template <typename Work>
  void timed(Way way, int repetition, const Work& work) {
    pthread_barrier_wait(&shared_.barrier);
    const double before = processor_seconds();
    const Traffic traffic_before = traffic();
    pthread_barrier_wait(&shared_.barrier);
    shared_.begin[rank_] = now();
    work();
    shared_.end[rank_] = now();
    shared_.processor[rank_] = processor_seconds() - before;
    pthread_barrier_wait(&shared_.barrier);
    const Traffic after = traffic();
    shared_.bytes[rank_] =
        std::max(after.received - traffic_before.received, after.sent - traffic_before.sent);
    pthread_barrier_wait(&shared_.barrier);
    if (rank_ == 0 && repetition >= 0) {
      shared_.took[way][repetition] = *std::max_element(shared_.end, shared_.end + processes_) -
                                      *std::min_element(shared_.begin, shared_.begin + processes_);
      shared_.used[way][repetition] =
          std::accumulate(shared_.processor, shared_.processor + processes_, 0.0);
      shared_.most[way][repetition] = *std::max_element(shared_.bytes, shared_.bytes + processes_);
    }
    pthread_barrier_wait(&shared_.barrier);
  }

  // All ways overwrite their input.
  void restore() {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      std::memcpy(sums_[i].data(), original_[i].data(), original_[i].size() * sizeof(float));
    }
  }

  // A ring takes one vector from each process. In plain training it would already be summed.
  void add_up_own() {
    for (std::size_t part = 1; part < sums_.size(); ++part) {
      gloo::sum<float>(sums_[0].data(), sums_[0].data(), sums_[part].data(), sums_[0].size());
    }
  }

  void reduce_gloo() {
    for (std::size_t i = 0; i < layout_.buckets.size(); ++i) {
      const elastic::Piece& bucket = layout_.buckets[i];
      gloo::AllreduceOptions options(gloo_);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setOutput(sums_[0].data() + bucket.offset, bucket.count);
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
      options.setTag(static_cast<std::uint32_t>(i));
      gloo::allreduce(options);
    }
  }

  void reduce(Tree& tree, std::int64_t step) {
    elastic::Reduction& reduction = *tree.reduction;
    geometry_.step = step;
    reduction.begin(geometry_);
    std::vector<float*> sums;
    for (std::vector<float>& sum : sums_) sums.push_back(sum.data());
    tree.transport.retry();
    std::thread trainer([&] {
      for (int bucket = 0; bucket <= layout_.tail(); ++bucket) {
        poller_.post([&reduction, bucket, &sums] { reduction.ready(bucket, sums); });
      }
    });
    while (!reduction.complete()) poller_.wait(std::chrono::milliseconds(1000));
    tree.transport.flush();  // others may still wait for data from this process
    trainer.join();
  }

  void look(bool ours) {
    bool right = true;
    if (ours) {
      right = std::memcmp(result_.data(), expected_.data(), expected_.size() * sizeof(float)) == 0;
      std::fill(result_.begin(), result_.end(), -1.0F);
    } else {
      for (std::size_t i = 0; i < expected_.size(); ++i) {
        right = right && std::abs(sums_[0][i] - expected_[i]) < 1e-4F;
      }
    }
    if (!right) shared_.wrong.fetch_add(1);
  }

  const Settings& settings_;
  Shared& shared_;
  int rank_;
  int processes_;
  elastic::Layout layout_;
  wire::Poller poller_;
  Tree plain_;
  Tree tls_;
  elastic::Geometry geometry_;
  std::vector<float> result_;
  std::vector<std::vector<float>> original_;  // the subtree sums of this process
  std::vector<std::vector<float>> sums_;
  std::vector<float> expected_;
  std::shared_ptr<gloo::Context> gloo_;
};

struct Row {
  std::string shape;
  std::array<double, kWays> took{};
  std::array<double, kWays> used{};
  std::array<double, kWays> most{};   // megabytes
  std::array<double, kWays> ratio{};  // to gloo; the median of the ratios of neighbours
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The leaves of the workers, "4-4", or of the workers of each host, "111-111-11".
std::string shown(const Shape& shape) {
  const int processes = std::accumulate(shape.begin(), shape.end(), 0);
  const std::vector<elastic::Range> ranges = elastic::split_leaves(kLeaves, processes);
  std::string text;
  std::size_t next = 0;
  for (const int on_host : shape) {
    if (next > 0) text += "-";
    for (int i = 0; i < on_host; ++i) text += std::to_string(ranges[next++].size());
  }
  return text;
}

// The listeners exist before any process connects.
Row measure(Settings& settings, const Shape& shape) {
  settings.hosts.clear();
  for (std::size_t host = 0; host < shape.size(); ++host) {
    settings.hosts.insert(settings.hosts.end(), static_cast<std::size_t>(shape[host]),
                          settings.all_hosts[host]);
  }
  const auto processes = static_cast<int>(settings.hosts.size());
  Shared& shared = share(processes);
  std::string directory = std::filesystem::temp_directory_path() / "rubato-reduce-XXXXXX";
  CHECK(mkdtemp(directory.data()) != nullptr);
  std::vector<wire::Fd> listeners;
  std::vector<std::string> addresses;
  for (int i = 0; i < processes; ++i) {
    const Host& host = settings.hosts[static_cast<std::size_t>(i)];
    enter_network(host.network);
    Result<wire::Fd> listener = wire::listen_on(fmt::format("tcp:{}:0", host.address));
    CHECK(static_cast<bool>(listener));
    addresses.push_back(*wire::address_of(*listener));
    listeners.push_back(std::move(*listener));
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < processes; ++rank) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      {
        enter_network(settings.hosts[static_cast<std::size_t>(rank)].network);
        Member member(settings, shared, rank, processes);
        member.connect(listeners[static_cast<std::size_t>(rank)], addresses);
        member.connect_gloo(directory);
        member.run();
      }
      _exit(0);
    }
    children.push_back(child);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed = failed || status != 0;
  }
  std::filesystem::remove_all(directory);
  if (failed || shared.wrong > 0) {
    fmt::print(stderr, "reduce_gloo: {}: {} wrong sums, {}\n", shown(shape), shared.wrong.load(),
               failed ? "a process failed" : "all processes ended well");
    std::exit(1);
  }
  Row row{.shape = shown(shape)};
  for (std::size_t way = 0; way < kWays; ++way) {
    const auto& took = shared.took[way];
    const auto& used = shared.used[way];
    std::vector<double> ratios;
    for (int i = 0; i < settings.repetitions; ++i)
      ratios.push_back(took[i] / shared.took[kGloo][i]);
    row.took[way] = median({took, took + settings.repetitions});
    row.used[way] = median({used, used + settings.repetitions});
    const auto& most = shared.most[way];
    row.most[way] = 1e-6 * median({most, most + settings.repetitions});
    row.ratio[way] = median(ratios);
  }
  munmap(&shared, sizeof(Shared));
  return row;
}

// "PID=ADDRESS,..."
std::vector<Host> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    const std::size_t middle = one.find('=');
    if (middle == std::string::npos || static_cast<int>(hosts.size()) == kMostProcesses) {
      fmt::print(stderr, "reduce_gloo: --hosts {}: not PID=ADDRESS,..., at most {}\n", text,
                 kMostProcesses);
      std::exit(2);
    }
    hosts.push_back(
        {fmt::format("/proc/{}/ns/net", one.substr(0, middle)), one.substr(middle + 1)});
    at = end + 1;
  }
  return hosts;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::atoll(argv[++i]) : 0; };
    if (name == "--json") {
      settings.json = true;
    } else if (name == "--repetitions") {
      settings.repetitions = static_cast<int>(std::clamp<long long>(number(), 1, kMostRepetitions));
    } else if (name == "--floats") {
      settings.floats = static_cast<std::size_t>(std::max<long long>(number(), 1));
    } else if (name == "--bucket-bytes") {
      settings.bucket_bytes = static_cast<std::size_t>(std::max<long long>(number(), 4096));
    } else if (name == "--hosts") {
      settings.all_hosts = parse_hosts(i + 1 < argc ? argv[++i] : "");
    } else {
      fmt::print(stderr,
                 "reduce_gloo: '{}' is none of --json, --repetitions, --floats, "
                 "--bucket-bytes, --hosts\n",
                 name);
      std::exit(2);
    }
  }
  return settings;
}

int run(Settings settings) {
  const bool far = !settings.all_hosts.empty();
  std::vector<Shape> shapes = {{1, 1}, {1, 1, 1, 1}, {1, 1, 1}};
  if (far) shapes.insert(shapes.end(), {{4, 4}, {3, 3, 2}});
  if (!far) settings.all_hosts.resize(kMostProcesses);
  Json rows = Json::array();
  if (!settings.json) {
    fmt::print(
        "{:.0f} MB, buckets of {:.1f} MB, medians of {}; every sum of ours bit-equal to the "
        "serial tree; processor milliseconds of all processes\n"
        "{:<10} {:>10} {:>10} {:>11} {:>10} {:>11}   {:>9} {:>9} {:>9}   {:>7} {:>7} {:>7}\n",
        4e-6 * static_cast<double>(settings.floats),
        1e-6 * static_cast<double>(settings.bucket_bytes), settings.repetitions, "leaves",
        "gloo ring", "our tree", "ours/gloo", "with TLS", "TLS/gloo", "CPU gloo", "CPU ours",
        "CPU TLS", "MB gloo", "MB ours", "MB TLS");
  }
  for (const Shape& shape : shapes) {
    if (shape.size() > settings.all_hosts.size()) continue;
    const Row row = measure(settings, shape);
    rows.push_back({{"leaves", row.shape},
                    {"gloo_s", row.took[kGloo]},
                    {"ours_s", row.took[kPlain]},
                    {"ratio", row.ratio[kPlain]},
                    {"tls_s", row.took[kTls]},
                    {"tls_ratio", row.ratio[kTls]},
                    {"processor_s", row.used},
                    {"busiest_link_mb", row.most}});
    if (!settings.json) {
      fmt::print(
          "{:<10} {:>7.1f} ms {:>7.1f} ms {:>11.2f} {:>7.1f} ms {:>11.2f}   {:>9.0f} {:>9.0f} "
          "{:>9.0f}   {:>7.1f} {:>7.1f} {:>7.1f}\n",
          row.shape, 1e3 * row.took[kGloo], 1e3 * row.took[kPlain], row.ratio[kPlain],
          1e3 * row.took[kTls], row.ratio[kTls], 1e3 * row.used[kGloo], 1e3 * row.used[kPlain],
          1e3 * row.used[kTls], row.most[kGloo], row.most[kPlain], row.most[kTls]);
      std::fflush(stdout);
    }
  }
  if (settings.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

}  // namespace
}  // namespace rubato::bench

int main(int argc, char** argv) { return rubato::bench::run(rubato::bench::parse(argc, argv)); }
