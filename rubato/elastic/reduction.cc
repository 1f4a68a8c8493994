#include "rubato/elastic/reduction.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/elastic/kernels.h"
#include "rubato/elastic/reduction_plan.h"

namespace rubato::elastic {

namespace {

// All operands of an addition then fit into the first-level cache.
constexpr std::size_t kTile = 2048;
constexpr std::size_t kVectorAlignment = 16;  // floats of a cache line

// The part of a bucket that owner i of n finishes.
Piece shard(const Piece& bucket, std::size_t i, std::size_t n) {
  const auto cut = [&](std::size_t k) {
    return k == n ? bucket.count : bucket.count * k / n / kVectorAlignment * kVectorAlignment;
  };
  return {bucket.offset + cut(i), cut(i + 1) - cut(i)};
}

class TreeReduction : public Reduction {
 public:
  TreeReduction(Uid self, const Layout& layout, Transport& transport)
      : self_(self), layout_(layout), transport_(transport), buckets_(layout.buckets.size()) {}

  void begin(const Geometry& geometry) override {
    geometry_ = geometry;
    const std::vector<Range> ranges = geometry.ranges();
    std::vector<ReductionWorker> workers(geometry.working.size());
    self_index_ = workers.size();
    for (std::size_t i = 0; i < workers.size(); ++i) {
      workers[i] = {geometry.hosts.empty() ? "" : geometry.hosts[i], ranges[i]};
      if (geometry.working[i] == self_) self_index_ = i;
    }
    plan_ = plan_reduction(workers, self_index_);
    CHECK(plan_.elements.size() <= kMostElements);
    own_elements_.clear();
    for (std::size_t i = 0; i < plan_.holders.size(); ++i) {
      if (plan_.holders[i] == self_index_) own_elements_.push_back(i);
    }
    for (Bucket& bucket : buckets_) {
      bucket.missing.clear();
      for (const ShardPart& part : plan_.parts) bucket.missing.push_back(part.awaited.size() + 1);
      bucket.shards_missing = plan_.owners.size();
      // Of another plan.
      std::erase_if(bucket.staged, [this](const auto& entry) { return !awaits(entry.first); });
    }
    // A step without leaves has nothing to sum.
    buckets_missing_ = plan_.owners.empty() ? 0 : buckets_.size();
    finite_ = true;
    norms_.assign(buckets_.size() * std::max<std::size_t>(plan_.owners.size(), 1), 0);
  }

  void ready(int index, const std::vector<float*>& sums) override {
    CHECK(!own_elements_.empty() && sums.size() == own_elements_.size());
    buckets_[static_cast<std::size_t>(index)].sums = sums;
    for (std::size_t shard = 0; shard < plan_.parts.size(); ++shard) {
      hand_over(index, shard, plan_.parts[shard].raw);
    }
    for (std::size_t shard = 0; shard < plan_.parts.size(); ++shard) {
      if (plan_.parts[shard].adds) one_less(index, shard);
    }
  }

  void supply(std::span<const float> /*result*/) override {
    CHECK(false);  // this reduction computes it
  }

  std::byte* where(Uid /*from*/, const Header& header) override {
    const auto index = static_cast<int>(header.bucket);
    if (header.bucket >= buckets_.size() || header.shard >= plan_.parts.size()) return nullptr;
    const Piece piece = piece_of(index, header.shard);
    CHECK(header.bytes == piece.count * sizeof(float));
    if (header.kind == Kind::result) {
      return reinterpret_cast<std::byte*>(geometry_.result.data() + piece.offset);
    }
    CHECK(awaits({header.shard, header.part}));
    return reinterpret_cast<std::byte*>(staged(index, header.shard, header.part));
  }

  void arrived(Uid /*from*/, const Header& header) override {
    const auto index = static_cast<int>(header.bucket);
    if (header.kind == Kind::partial) return one_less(index, header.shard);
    finite_ = finite_ && header.finite != 0;
    send_result(header);
    shard_done(index, header.shard, header.sqr_norm);
  }

  [[nodiscard]] bool complete() const override { return buckets_missing_ == 0; }
  [[nodiscard]] bool finite() const override { return finite_; }
  [[nodiscard]] double sqr_norm() const override {
    double sum = 0;
    for (const double norm : norms_) sum += norm;
    return sum;
  }

 private:
  static constexpr std::size_t kMostElements = std::size_t{1} << 16U;

  using ShardElement = std::pair<std::size_t, std::size_t>;
  struct Bucket {
    std::vector<std::size_t> missing;  // by shard: elements of others, and one for its own
    std::size_t shards_missing = 0;    // of the result
    std::vector<float*> sums;          // this worker's own subtree sums, whole vectors
    std::map<ShardElement, std::vector<float>> staged;  // others' sums
  };

  [[nodiscard]] Piece piece_of(int bucket, std::size_t owner) const {
    return shard(layout_.buckets[static_cast<std::size_t>(bucket)], owner, plan_.owners.size());
  }

  [[nodiscard]] bool awaits(const ShardElement& element) const {
    if (element.first >= plan_.parts.size()) return false;
    const std::vector<int>& awaited = plan_.parts[element.first].awaited;
    return std::binary_search(awaited.begin(), awaited.end(), static_cast<int>(element.second));
  }

  float* staged(int index, std::size_t shard, std::size_t element) {
    std::vector<float>& buffer = buckets_[static_cast<std::size_t>(index)].staged[{shard, element}];
    const std::size_t count = std::max<std::size_t>(piece_of(index, shard).count, 1);
    if (buffer.size() < count) buffer.resize(count);
    return buffer.data();
  }

  float* operand(int index, std::size_t shard, std::size_t element) {
    const auto own = std::find(own_elements_.begin(), own_elements_.end(), element);
    if (own == own_elements_.end()) return staged(index, shard, element);
    const auto part = static_cast<std::size_t>(own - own_elements_.begin());
    return buckets_[static_cast<std::size_t>(index)].sums[part] + piece_of(index, shard).offset;
  }

  void hand_over(int index, std::size_t shard, const std::vector<Hand>& hands) {
    for (const Hand& hand : hands) {
      Header header;
      header.kind = Kind::partial;
      header.part = static_cast<std::uint16_t>(hand.element);
      header.bucket = static_cast<std::uint32_t>(index);
      header.shard = static_cast<std::uint32_t>(shard);
      header.step = geometry_.step;
      const float* sum = operand(index, shard, static_cast<std::size_t>(hand.element));
      transport_.send(geometry_.working[hand.to], header,
                      std::as_bytes(std::span(sum, piece_of(index, shard).count)));
    }
  }

  void one_less(int index, std::size_t shard) {
    std::size_t& missing = buckets_[static_cast<std::size_t>(index)].missing[shard];
    CHECK(missing > 0);
    if (--missing == 0) add_up(index, shard);
  }

  // All sums that this worker needs for the shard have arrived. Adds them, tile by tile. The owner
  // sends the result to all, a collector sends what is left to the owner.
  void add_up(int index, std::size_t shard) {
    const ShardPart& part = plan_.parts[shard];
    const Piece piece = piece_of(index, shard);
    std::map<int, float*> elements;
    const auto find = [&](int element) {
      float*& found = elements[element];
      if (found == nullptr) found = operand(index, shard, static_cast<std::size_t>(element));
      return found;
    };
    std::vector<std::pair<float*, const float*>> additions;
    additions.reserve(part.additions.size());
    for (const Addition& addition : part.additions) {
      additions.emplace_back(find(addition.into), find(addition.from));
    }
    const bool owns = plan_.owners[shard] == self_index_;
    const float* root = owns ? find(0) : nullptr;
    float* result = geometry_.result.data() + piece.offset;
    Header header;
    header.kind = Kind::result;
    header.bucket = static_cast<std::uint32_t>(index);
    header.shard = static_cast<std::uint32_t>(shard);
    header.step = geometry_.step;
    for (std::size_t at = 0; at < piece.count; at += kTile) {
      const std::size_t size = std::min(kTile, piece.count - at);
      for (const auto& [into, from] : additions) add({into + at, size}, {from + at, size});
      if (!owns) continue;
      const Measured measured = copy_measured({result + at, size}, {root + at, size});
      header.sqr_norm += measured.sqr_norm;
      if (!measured.finite) header.finite = 0;
    }
    if (!owns) return hand_over(index, shard, part.sums);
    if (index == layout_.tail()) header.sqr_norm = 0;
    send_result(header);
    for (const Uid uid : geometry_.listening) send_result_to(uid, header);
    finite_ = finite_ && header.finite != 0;
    shard_done(index, shard, header.sqr_norm);
  }

  void send_result(const Header& header) {
    for (const std::size_t worker : plan_.parts[header.shard].results_to) {
      send_result_to(geometry_.working[worker], header);
    }
  }

  void send_result_to(Uid uid, const Header& header) {
    if (uid == self_) return;
    const Piece piece = piece_of(static_cast<int>(header.bucket), header.shard);
    const std::span<const float> result = geometry_.result.subspan(piece.offset, piece.count);
    transport_.send(uid, header, std::as_bytes(result));
  }

  void shard_done(int index, std::size_t shard, double sqr_norm) {
    norms_[static_cast<std::size_t>(index) * plan_.owners.size() + shard] = sqr_norm;
    Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
    CHECK(bucket.shards_missing > 0);
    if (--bucket.shards_missing == 0) --buckets_missing_;
  }

  Uid self_;
  const Layout& layout_;
  Transport& transport_;
  Geometry geometry_;
  ReductionPlan plan_;
  std::size_t self_index_ = 0;             // among the working members
  std::vector<std::size_t> own_elements_;  // of the plan, in the order of ready()'s sums
  std::vector<Bucket> buckets_;
  std::size_t buckets_missing_ = 0;
  bool finite_ = true;
  // By bucket and shard, so that the sum does not depend on the order of arrival.
  std::vector<double> norms_;
};

class GroupReduction : public Reduction {
 public:
  GroupReduction(Uid self, const Layout& layout, Transport& transport)
      : self_(self), layout_(layout), transport_(transport) {}

  void begin(const Geometry& geometry) override {
    geometry_ = geometry;
    complete_ = geometry.leaves == 0;
    measured_ = {};
  }
  void ready(int /*bucket*/, const std::vector<float*>& /*sums*/) override {}

  void supply(std::span<const float> result) override {
    CHECK(result.size() == geometry_.result.size());
    std::copy(result.begin(), result.end(), geometry_.result.begin());
    finish();
    if (geometry_.working.front() != self_) return;
    Header header;
    header.kind = Kind::result;
    header.step = geometry_.step;
    for (const Uid uid : geometry_.listening)
      transport_.send(uid, header, std::as_bytes(std::span<const float>(geometry_.result)));
  }

  std::byte* where(Uid from, const Header& header) override {
    const bool expected = header.kind == Kind::result && !geometry_.working.empty() &&
                          from == geometry_.working.front() &&
                          header.bytes == geometry_.result.size_bytes();
    return expected ? reinterpret_cast<std::byte*>(geometry_.result.data()) : nullptr;
  }
  void arrived(Uid /*from*/, const Header& /*header*/) override { finish(); }

  [[nodiscard]] bool complete() const override { return complete_; }
  [[nodiscard]] bool finite() const override { return measured_.finite && tail_.finite; }
  [[nodiscard]] double sqr_norm() const override { return measured_.sqr_norm; }

 private:
  // All workers have the same result, so all measure the same.
  void finish() {
    const Piece& tail = layout_.buckets[static_cast<std::size_t>(layout_.tail())];
    measured_ = measure(geometry_.result.first(tail.offset));
    tail_ = measure(geometry_.result.subspan(tail.offset, tail.count));
    complete_ = true;
  }

  Uid self_;
  const Layout& layout_;
  Transport& transport_;
  Geometry geometry_;
  bool complete_ = true;
  Measured measured_, tail_;
};

}  // namespace

std::unique_ptr<Reduction> make_group_reduction(Uid self, const Layout& layout,
                                                Transport& transport) {
  return std::make_unique<GroupReduction>(self, layout, transport);
}

std::unique_ptr<Reduction> make_tree_reduction(Uid self, const Layout& layout,
                                               Transport& transport) {
  return std::make_unique<TreeReduction>(self, layout, transport);
}

}  // namespace rubato::elastic
