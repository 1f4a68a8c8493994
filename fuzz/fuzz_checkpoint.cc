// Takes any bytes as a checkpoint. The result must be an error that names the file, or sections
// that lie inside it. Random bytes never have the right checksum, so some inputs get help. After
// '{', the bytes up to the first zero are a header. After 's', they are sizes of sections. Both get
// the start of a file. Sizes also get a header, with checksums that are right for the sections that
// exist.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "rubato/base/check.h"
#include "rubato/elastic/checkpoint_format.h"

namespace {

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::uint64_t checksum_of(std::uint32_t version, const rubato::elastic::Pieces& pieces) {
  return version == 1 ? rubato::elastic::checksum_v1(pieces) : rubato::elastic::checksum(pieces);
}

// Puts the start of a file before a header.
std::string sealed(std::uint32_t version, const std::string& header) {
  std::string start = "RUBATOCK";
  append(start, version);
  append(start, static_cast<std::uint32_t>(header.size()));
  append(start,
         checksum_of(version, {std::as_bytes(std::span(start)), std::as_bytes(std::span(header))}));
  return start + header;
}

std::string from_header(std::uint32_t version, const std::string& input) {
  const std::size_t length = std::min(input.find('\0'), input.size());
  return sealed(version, input.substr(0, length)) + input.substr(length);
}

// The input is 's', the number of sections, their sizes (8 bytes each), and what follows the
// header.
std::string from_sizes(std::uint32_t version, const std::string& input) {
  const std::size_t sections = input.size() < 2 ? 0 : static_cast<unsigned char>(input[1]) % 8U;
  const std::size_t sizes_end = 2 + 8 * sections;
  if (input.size() < sizes_end) return input;
  const std::string rest = input.substr(sizes_end);
  rubato::base::Json list = rubato::base::Json::array();
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < sections; ++i) {
    std::uint64_t size = 0;
    std::memcpy(&size, input.data() + 2 + 8 * i, 8);
    rubato::elastic::Pieces body;
    if (at <= rest.size() && size <= rest.size() - at)
      body.push_back(std::as_bytes(std::span(rest)).subspan(at, size));
    list.push_back({{"name", "s"},
                    {"head", nullptr},
                    {"bytes", size},
                    {"checksum", checksum_of(version, body)}});
    at += (size + 63) / 64 * 64;
  }
  const rubato::base::Json about{{"plan", 1}, {"revision", 0}, {"step", 5}};
  std::string file =
      sealed(version, rubato::base::Json{{"about", about}, {"sections", list}}.dump());
  file.resize((file.size() + 63) / 64 * 64, '\0');
  return file + rest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::elastic;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  // Alternates between both versions of the format.
  const std::uint32_t version = 1 + size % 2;
  if (bytes.starts_with('{')) bytes = from_header(version, bytes);
  if (bytes.starts_with('s')) bytes = from_sizes(version, bytes);

  const int file = memfd_create("input", 0);
  CHECK(file >= 0);
  CHECK(write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  const auto loaded = load_checkpoint(path);
  close(file);
  if (!loaded) {
    CHECK(loaded.error().message.starts_with(path));
    return 0;
  }
  std::size_t total = 0;
  for (const auto& section : loaded->sections) total += section.body.size();
  CHECK(total <= bytes.size());
  return 0;
}
