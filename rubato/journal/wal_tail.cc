#include "rubato/journal/wal_tail.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <span>
#include <vector>

namespace rubato::journal {
namespace {

constexpr std::size_t kHeader = 32;
constexpr std::size_t kFrameHeader = 24;
constexpr std::uint32_t kMagic = 0x377F0682;  // the last bit: checksums use big-endian words

using Bytes = std::span<const std::uint8_t>;

std::uint32_t big_endian(Bytes bytes, std::size_t at) {
  return (std::uint32_t{bytes[at]} << 24U) | (std::uint32_t{bytes[at + 1]} << 16U) |
         (std::uint32_t{bytes[at + 2]} << 8U) | std::uint32_t{bytes[at + 3]};
}

// The running checksum of the format.
struct Sum {
  bool big = false;
  std::uint32_t first = 0;
  std::uint32_t second = 0;

  void add(Bytes bytes) {
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      first += word(bytes, i) + second;
      second += word(bytes, i + 4) + first;
    }
  }
  [[nodiscard]] bool is(Bytes bytes, std::size_t at) const {
    return first == big_endian(bytes, at) && second == big_endian(bytes, at + 4);
  }

 private:
  [[nodiscard]] std::uint32_t word(Bytes bytes, std::size_t at) const {
    const std::uint32_t value = big_endian(bytes, at);
    return big ? value : __builtin_bswap32(value);
  }
};

class WalFile {
 public:
  explicit WalFile(const std::string& path) : file_(path, std::ios::binary) {}

  // False at the end of the file. Then fewer bytes than asked for may have been read.
  bool read(std::vector<std::uint8_t>& bytes) {
    file_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    got_ = static_cast<std::size_t>(file_.gcount());
    return got_ == bytes.size();
  }
  [[nodiscard]] std::size_t got() const { return got_; }
  [[nodiscard]] bool opened() const { return file_.is_open(); }

 private:
  std::ifstream file_;
  std::size_t got_ = 0;
};

bool power_of_two_page(std::uint32_t size) {
  return size >= 512 && size <= 65536 && (size & (size - 1)) == 0;
}

}  // namespace

Result<std::optional<WalTail>> unfinished_wal(const std::string& path) {
  WalFile file(path);
  if (!file.opened()) {
    if (errno == ENOENT) return std::optional<WalTail>();
    return Error{fmt::format("{}: cannot be read: {}", path, std::strerror(errno))};
  }
  std::vector<std::uint8_t> header(kHeader);
  const bool whole_header = file.read(header);
  if (file.got() == 0) return std::optional<WalTail>();
  const std::uint32_t page = big_endian(header, 8);
  Sum sum{(big_endian(header, 0) & 1U) != 0};
  sum.add(Bytes(header).first(24));
  if (!whole_header || (big_endian(header, 0) & ~1U) != kMagic || !sum.is(header, 24) ||
      !power_of_two_page(page)) {
    // SQLite will not use any of it.
    std::uint64_t size = file.got();
    std::vector<std::uint8_t> more(std::size_t{1} << 16U);
    while (file.read(more)) size += more.size();
    return std::optional(WalTail{0, size + (whole_header ? file.got() : 0)});
  }

  std::vector<std::uint8_t> frame(kFrameHeader + page);
  WalTail tail{kHeader, kHeader};
  std::uint64_t at = kHeader;
  bool good = true;  // so far
  for (bool more = true; more;) {
    more = file.read(frame);
    if (file.got() < 16) break;
    const bool belongs = std::memcmp(&frame[8], &header[16], 8) == 0;
    if (good && more && belongs) {
      sum.add(Bytes(frame).first(8));
      sum.add(Bytes(frame).subspan(kFrameHeader));
      good = sum.is(frame, 16) && big_endian(frame, 0) != 0;
      const bool ends_transaction = good && big_endian(frame, 4) != 0;
      if (ends_transaction) tail.from = at + frame.size();
    } else {
      good = false;
    }
    at += file.got();
    if (belongs) tail.to = at;
  }
  if (tail.to <= tail.from) return std::optional<WalTail>();
  return std::optional(tail);
}

}  // namespace rubato::journal
