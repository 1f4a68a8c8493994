#include "rubato/elastic/reduction.h"

#include <algorithm>
#include <cstring>

#include "rubato/base/check.h"
#include "rubato/elastic/kernels.h"

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
    owners_.clear();
    all_.clear();
    first_element_.clear();
    own_ = kNobody;
    const std::vector<Range> ranges = geometry.ranges();
    for (std::size_t i = 0; i < geometry.working.size(); ++i) {
      if (ranges[i].empty()) continue;
      if (geometry.working[i] == self_) own_ = owners_.size();
      first_element_.push_back(all_.size());
      const SummationOrder order = summation_order(ranges[i].first, ranges[i].last);
      all_.insert(all_.end(), order.subtrees.begin(), order.subtrees.end());
      owners_.push_back(geometry.working[i]);
    }
    first_element_.push_back(all_.size());
    additions_ = finish_tree(all_);
    receivers_.clear();
    for (const Uid uid : geometry.working) {
      if (uid != self_) receivers_.push_back(uid);
    }
    receivers_.insert(receivers_.end(), geometry.listening.begin(), geometry.listening.end());
    receivers_.erase(std::remove(receivers_.begin(), receivers_.end(), self_), receivers_.end());
    for (Bucket& bucket : buckets_) {
      bucket.elements_missing = all_.size();
      bucket.shards_missing = owners_.size();
    }
    // A step without leaves has nothing to sum.
    buckets_missing_ = owners_.empty() ? 0 : buckets_.size();
    finite_ = true;
    norms_.assign(buckets_.size() * std::max<std::size_t>(owners_.size(), 1), 0);
  }

  void ready(int index, const std::vector<float*>& sums) override {
    CHECK(own_ != kNobody);
    const std::size_t mine = first_element_[own_ + 1] - first_element_[own_];
    CHECK(sums.size() == mine);
    Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
    bucket.sums = sums;
    for (std::size_t owner = 0; owner < owners_.size(); ++owner) {
      if (owner == own_) continue;
      const Piece piece = piece_of(index, owner);
      for (std::size_t part = 0; part < mine; ++part) {
        Header header;
        header.kind = Kind::partial;
        header.part = static_cast<std::uint16_t>(part);
        header.bucket = static_cast<std::uint32_t>(index);
        header.step = geometry_.step;
        transport_.send(
            owners_[owner], header,
            std::as_bytes(std::span<const float>(sums[part] + piece.offset, piece.count)));
      }
    }
    element_arrived(index, mine);
  }

  void supply(std::span<const float> /*result*/) override {
    CHECK(false);  // this reduction computes it
  }

  std::byte* where(Uid from, const Header& header) override {
    const auto index = static_cast<int>(header.bucket);
    const std::size_t sender = owner_of(from);
    if (sender == kNobody || header.bucket >= buckets_.size()) return nullptr;
    if (header.kind == Kind::result) {
      const Piece piece = piece_of(index, sender);
      CHECK(header.bytes == piece.count * sizeof(float));
      return reinterpret_cast<std::byte*>(geometry_.result.data() + piece.offset);
    }
    CHECK(own_ != kNobody && header.bytes == piece_of(index, own_).count * sizeof(float));
    return reinterpret_cast<std::byte*>(staged(index, first_element_[sender] + header.part));
  }

  void arrived(Uid from, const Header& header) override {
    const auto index = static_cast<int>(header.bucket);
    if (header.kind == Kind::partial) return element_arrived(index, 1);
    finite_ = finite_ && header.finite != 0;
    shard_done(index, owner_of(from), header.sqr_norm);
  }

  [[nodiscard]] bool complete() const override { return buckets_missing_ == 0; }
  [[nodiscard]] bool finite() const override { return finite_; }
  [[nodiscard]] double sqr_norm() const override {
    double sum = 0;
    for (const double norm : norms_) sum += norm;
    return sum;
  }

 private:
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

  struct Bucket {
    std::size_t elements_missing = 0;        // of this worker's shard
    std::size_t shards_missing = 0;          // of the result
    std::vector<float*> sums;                // this worker's own subtree sums, whole vectors
    std::vector<std::vector<float>> staged;  // by element: others' sums of this shard
  };

  [[nodiscard]] std::size_t owner_of(Uid uid) const {
    const auto found = std::find(owners_.begin(), owners_.end(), uid);
    return found == owners_.end() ? kNobody : static_cast<std::size_t>(found - owners_.begin());
  }
  [[nodiscard]] Piece piece_of(int bucket, std::size_t owner) const {
    return shard(layout_.buckets[static_cast<std::size_t>(bucket)], owner, owners_.size());
  }

  float* staged(int index, std::size_t element) {
    std::vector<std::vector<float>>& buffers = buckets_[static_cast<std::size_t>(index)].staged;
    if (buffers.size() < all_.size()) buffers.resize(all_.size());
    std::vector<float>& buffer = buffers[element];
    const std::size_t count = std::max<std::size_t>(piece_of(index, own_).count, 1);
    if (buffer.size() < count) buffer.resize(count);
    return buffer.data();
  }

  void element_arrived(int index, std::size_t count) {
    Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
    CHECK(bucket.elements_missing >= count);
    bucket.elements_missing -= count;
    if (bucket.elements_missing == 0) finish(index);
  }

  // All sums of this worker's shard have arrived. Adds them, tile by tile, and sends the result to
  // all workers.
  void finish(int index) {
    const Piece piece = piece_of(index, own_);
    std::vector<float*> elements;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const bool mine = i >= first_element_[own_] && i < first_element_[own_ + 1];
      elements.push_back(
          mine ? buckets_[static_cast<std::size_t>(index)].sums[i - first_element_[own_]] +
                     piece.offset
               : staged(index, i));
    }
    Header header;
    header.kind = Kind::result;
    header.bucket = static_cast<std::uint32_t>(index);
    header.step = geometry_.step;
    float* result = geometry_.result.data() + piece.offset;
    for (std::size_t at = 0; at < piece.count; at += kTile) {
      const std::size_t size = std::min(kTile, piece.count - at);
      for (const Addition& addition : additions_) {
        add({elements[static_cast<std::size_t>(addition.into)] + at, size},
            {elements[static_cast<std::size_t>(addition.from)] + at, size});
      }
      const Measured measured = copy_measured({result + at, size}, {elements[0] + at, size});
      header.sqr_norm += measured.sqr_norm;
      if (!measured.finite) header.finite = 0;
    }
    if (index == layout_.tail()) header.sqr_norm = 0;
    for (const Uid uid : receivers_) {
      transport_.send(uid, header, std::as_bytes(std::span<const float>(result, piece.count)));
    }
    finite_ = finite_ && header.finite != 0;
    shard_done(index, own_, header.sqr_norm);
  }

  void shard_done(int index, std::size_t owner, double sqr_norm) {
    norms_[static_cast<std::size_t>(index) * owners_.size() + owner] = sqr_norm;
    Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
    CHECK(bucket.shards_missing > 0);
    if (--bucket.shards_missing == 0) --buckets_missing_;
  }

  Uid self_;
  const Layout& layout_;
  Transport& transport_;
  Geometry geometry_;
  std::vector<Uid> owners_;    // working members with leaves
  std::size_t own_ = kNobody;  // this worker's index among them
  std::vector<Subtree> all_;   // subtrees of all owners, in order
  std::vector<std::size_t> first_element_;
  std::vector<Addition> additions_;
  std::vector<Uid> receivers_;
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
