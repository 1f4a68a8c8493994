// Compares all-reduce of 100 MB of gradients between processes on this machine: gloo's ring and our
// tree (elastic/reduction.h). Both use loopback TCP, in the same processes and in turns, so that
// other load on the machine affects both.
//
//   build/bench/reduce_gloo [--json] [--repetitions 15] [--floats 25000000] [--bucket-bytes
//   8388608]
//
// A time is from the start of the first process to the end of the last. Every result of ours is
// compared with a serial sum in the order of the tree, bit by bit. So all shapes give the same
// bits. gloo sums in the order of its ring; its result is compared with a tolerance.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
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

struct Settings {
  bool json = false;
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
  double ours[kMostRepetitions];
  double gloo[kMostRepetitions];
};

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

class Member {
 public:
  Member(const Settings& settings, Shared& shared, int rank, int processes)
      : settings_(settings),
        shared_(shared),
        rank_(rank),
        processes_(processes),
        layout_(layout_of(settings)),
        transport_(
            poller_,
            {[this](Uid from, const elastic::Header& h) { return reduction_->where(from, h); },
             [this](Uid from, const elastic::Header& h) { reduction_->arrived(from, h); },
             [](Uid) { CHECK(!"a peer is gone"); }}),
        reduction_(elastic::make_tree_reduction(rank + 1, layout_, transport_)),
        result_(layout_.total) {
    for (int i = 0; i < processes; ++i) geometry_.working.push_back(i + 1);
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

  // A connection to each process: the lower rank listens, and the caller sends its rank.
  void connect(const wire::Fd& listener, const std::vector<std::string>& addresses) {
    for (int peer = 0; peer < rank_; ++peer) {
      Result<wire::Fd> fd = wire::connect_to(addresses[static_cast<std::size_t>(peer)]);
      CHECK(static_cast<bool>(fd));
      pollfd ready{fd->get(), POLLOUT, 0};
      const auto name = static_cast<char>(rank_);
      CHECK(poll(&ready, 1, 10'000) == 1 && write(fd->get(), &name, 1) == 1);
      transport_.connect(peer + 1, wire::Link(std::move(*fd)));
    }
    for (int callers = rank_ + 1; callers < processes_; ++callers) {
      pollfd ready{listener.get(), POLLIN, 0};
      CHECK(poll(&ready, 1, 10'000) == 1);
      wire::Fd fd = wire::accept_from(listener);
      ready.fd = fd.get();
      char name = 0;
      CHECK(poll(&ready, 1, 10'000) == 1 && read(fd.get(), &name, 1) == 1);
      transport_.connect(name + 1, wire::Link(std::move(fd)));
    }
  }

  void connect_gloo(const std::string& directory) {
    gloo::rendezvous::FileStore store(directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, processes_);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    gloo_ = context;
  }

  void run() {
    for (int i = -2; i < settings_.repetitions; ++i) {  // the first two warm up
      restore();
      add_up_own();
      const double gloo = timed([&] { reduce_gloo(); });
      look(false);
      restore();
      const double ours = timed([&] { reduce(i + 2); });
      look(true);
      if (rank_ == 0 && i >= 0) {
        shared_.ours[i] = ours;
        shared_.gloo[i] = gloo;
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

  template <typename Work>
  double timed(const Work& work) {
    pthread_barrier_wait(&shared_.barrier);
    shared_.begin[rank_] = now();
    work();
    shared_.end[rank_] = now();
    pthread_barrier_wait(&shared_.barrier);
    const double took = *std::max_element(shared_.end, shared_.end + processes_) -
                        *std::min_element(shared_.begin, shared_.begin + processes_);
    pthread_barrier_wait(&shared_.barrier);
    return took;
  }

  // Both overwrite their input.
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

  void reduce(std::int64_t step) {
    geometry_.step = step;
    reduction_->begin(geometry_);
    std::vector<float*> sums;
    for (std::vector<float>& sum : sums_) sums.push_back(sum.data());
    transport_.retry();
    std::thread trainer([&] {
      for (int bucket = 0; bucket <= layout_.tail(); ++bucket) {
        poller_.post([this, bucket, &sums] { reduction_->ready(bucket, sums); });
      }
    });
    while (!reduction_->complete()) poller_.wait(std::chrono::milliseconds(1000));
    transport_.flush();  // others may still wait for data from this process
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
  elastic::Transport transport_;
  std::unique_ptr<elastic::Reduction> reduction_;
  elastic::Geometry geometry_;
  std::vector<float> result_;
  std::vector<std::vector<float>> original_;  // the subtree sums of this process
  std::vector<std::vector<float>> sums_;
  std::vector<float> expected_;
  std::shared_ptr<gloo::Context> gloo_;
};

struct Row {
  std::string shape;
  double ours = 0;
  double gloo = 0;
  double ratio = 0;  // the median of the ratios of neighbours
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string shape_of(int processes) {
  std::string shape;
  for (const elastic::Range& range : elastic::split_leaves(kLeaves, processes)) {
    shape += (shape.empty() ? "" : "-") + std::to_string(range.size());
  }
  return shape;
}

// The listeners exist before any process connects.
Row measure(const Settings& settings, int processes) {
  Shared& shared = share(processes);
  std::string directory = std::filesystem::temp_directory_path() / "rubato-reduce-XXXXXX";
  CHECK(mkdtemp(directory.data()) != nullptr);
  std::vector<wire::Fd> listeners;
  std::vector<std::string> addresses;
  for (int i = 0; i < processes; ++i) {
    Result<wire::Fd> listener = wire::listen_on("tcp:127.0.0.1:0");
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
    fmt::print(stderr, "reduce_gloo: {}: {} wrong sums, {}\n", shape_of(processes),
               shared.wrong.load(), failed ? "a process failed" : "all processes ended well");
    std::exit(1);
  }
  Row row{.shape = shape_of(processes)};
  std::vector<double> ratios;
  for (int i = 0; i < settings.repetitions; ++i) ratios.push_back(shared.ours[i] / shared.gloo[i]);
  row.ours = median({shared.ours, shared.ours + settings.repetitions});
  row.gloo = median({shared.gloo, shared.gloo + settings.repetitions});
  row.ratio = median(ratios);
  munmap(&shared, sizeof(Shared));
  return row;
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
    } else {
      fmt::print(stderr,
                 "reduce_gloo: '{}' is none of --json, --repetitions, --floats, "
                 "--bucket-bytes\n",
                 name);
      std::exit(2);
    }
  }
  return settings;
}

int run(const Settings& settings) {
  Json rows = Json::array();
  if (!settings.json) {
    fmt::print(
        "{:.0f} MB, buckets of {:.1f} MB, medians of {}; every sum of ours bit-equal to the "
        "serial tree\n{:<10} {:>10} {:>10} {:>11}\n",
        4e-6 * static_cast<double>(settings.floats),
        1e-6 * static_cast<double>(settings.bucket_bytes), settings.repetitions, "leaves",
        "gloo ring", "our tree", "ours/gloo");
  }
  for (const int processes : {2, 4, 3}) {
    const Row row = measure(settings, processes);
    rows.push_back(
        {{"leaves", row.shape}, {"gloo_s", row.gloo}, {"ours_s", row.ours}, {"ratio", row.ratio}});
    if (!settings.json) {
      fmt::print("{:<10} {:>7.1f} ms {:>7.1f} ms {:>11.2f}\n", row.shape, 1e3 * row.gloo,
                 1e3 * row.ours, row.ratio);
      std::fflush(stdout);
    }
  }
  if (settings.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

}  // namespace
}  // namespace rubato::bench

int main(int argc, char** argv) { return rubato::bench::run(rubato::bench::parse(argc, argv)); }
