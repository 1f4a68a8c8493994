#include "rubato/elastic/checkpoint_checksum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <xxhash.h>

#include "rubato/base/check.h"

namespace rubato::elastic {

namespace {

constexpr std::uint64_t kMultiplier = 0x9E6C63D0876A9A35ULL;

std::uint64_t stirred(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * kMultiplier;
  return state ^ (state >> 32U);
}

class ChecksumV1 {
 public:
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t value() const;

 private:
  static constexpr std::size_t kBlock = 32;

  void add_block(const std::byte* block);

  std::array<std::uint64_t, 4> lanes_{0x243F6A8885A308D3ULL, 0x13198A2E03707344ULL,
                                      0xA4093822299F31D0ULL, 0x082EFA98EC4E6C89ULL};
  std::array<std::byte, kBlock> partial_{};
  std::uint64_t length_ = 0;
};

void ChecksumV1::add_block(const std::byte* block) {
  std::array<std::uint64_t, 4> words;
  std::memcpy(words.data(), block, kBlock);
  for (std::size_t i = 0; i < words.size(); ++i) lanes_[i] = stirred(lanes_[i], words[i]);
}

void ChecksumV1::add(std::span<const std::byte> bytes) {
  const std::size_t held = length_ % kBlock;
  length_ += bytes.size();
  if (held > 0) {
    const std::size_t more = std::min(kBlock - held, bytes.size());
    std::copy_n(bytes.begin(), more, partial_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(more);
    if (held + more < kBlock) return;
    add_block(partial_.data());
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) add_block(bytes.data());
  std::copy(bytes.begin(), bytes.end(), partial_.begin());
}

std::uint64_t ChecksumV1::value() const {
  ChecksumV1 last = *this;
  if (const std::size_t held = length_ % kBlock; held > 0) {
    std::fill(last.partial_.begin() + static_cast<std::ptrdiff_t>(held), last.partial_.end(),
              std::byte{0});
    last.add_block(last.partial_.data());
  }
  std::uint64_t sum = stirred(0, length_);  // tells a tail of zeros from no tail
  for (const std::uint64_t lane : last.lanes_) sum = stirred(sum, lane);
  return stirred(sum, 0);
}

}  // namespace

std::uint64_t checksum(const Pieces& pieces) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  CHECK(state != nullptr && XXH3_64bits_reset(state.get()) == XXH_OK);
  for (const auto piece : pieces) {
    CHECK(XXH3_64bits_update(state.get(), piece.data(), piece.size()) == XXH_OK);
  }
  return XXH3_64bits_digest(state.get());
}

std::uint64_t checksum_v1(const Pieces& pieces) {
  ChecksumV1 checksum;
  for (const auto piece : pieces) checksum.add(piece);
  return checksum.value();
}

}  // namespace rubato::elastic
