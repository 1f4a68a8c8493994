// Takes any bytes as the files of a state directory: the live file, its log, or a segment. Opening
// must give a journal that can be written and read, or one line of error. It must never crash.
//
// The first byte says where the rest goes. 0 and 1 mean only the live file and only its log. Other
// values change a good journal: each of the following groups of 4 bytes changes one byte of it
// (which file, 2 bytes for the position, the new value).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/journal/journal.h"

namespace {

namespace fs = std::filesystem;
using namespace rubato::fuzz;

constexpr const char* kLive = "journal.sqlite";
constexpr const char* kLog = "journal.sqlite-wal";
constexpr const char* kSegment = "journal-000000000001-000000000006.sqlite";

// Removed when the fuzzer ends.
struct Directory {
  Directory() {
    const bool memory = fs::exists("/dev/shm");
    std::string name = std::string(memory ? "/dev/shm" : "/tmp") + "/rubato-fuzz-XXXXXX";
    CHECK(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Directory() { fs::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  fs::path path;
};

const fs::path& state_directory() {
  static const Directory directory;
  return directory.path;
}

JournalOptions options() {
  JournalOptions options;
  options.directory = state_directory();
  options.types = {{"event", 1}};
  return options;
}

void empty_directory() {
  for (const auto& entry : fs::directory_iterator(state_directory())) fs::remove_all(entry.path());
}

std::string read(const char* name) {
  std::ifstream file(state_directory() / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const char* name, std::string_view bytes) {
  std::ofstream(state_directory() / name, std::ios::binary) << bytes;
}

struct Files {
  std::string live, log, segment;
};

const Files& good_files() {
  static const Files files = [] {
    empty_directory();
    auto opened = Journal::open(options());
    CHECK(opened.ok());
    const std::vector<JournalRow> rows(3, {kStart, "event", 1, std::string(200, 'x')});
    for (int i = 0; i < 3; ++i) CHECK(opened->journal.append(rows).ok());
    CHECK(opened->journal.write_snapshot({RowNumber(6), 1, "{}"}).ok());
    CHECK(opened->journal.compact().ok());
    CHECK(opened->journal.append(rows).ok());
    return Files{read(kLive), read(kLog), read(kSegment)};
  }();
  return files;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Files files = good_files();
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] <= 1) {
    files =
        data[0] == 0 ? Files{std::string(rest), "", ""} : Files{files.live, std::string(rest), ""};
  } else {
    for (std::size_t i = 0; i + 4 <= rest.size(); i += 4) {
      const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(rest[i + at]); };
      std::string* const which[] = {&files.live, &files.log, &files.segment};
      std::string& file = *which[byte(0) % 3];
      file[(byte(1) * 256U + byte(2)) % file.size()] = rest[i + 3];
    }
  }
  empty_directory();
  write(kLive, files.live);
  if (!files.log.empty()) write(kLog, files.log);
  if (!files.segment.empty()) write(kSegment, files.segment);

  auto opened = Journal::open(options());
  if (!opened) {
    CHECK(!opened.error().message.empty());
    return 0;
  }
  CHECK(opened->journal.append({{kStart, "event", 1, "{}"}}).ok());
  const auto each = [](RowNumber, const JournalRow&) { return Result<void>(); };
  const auto read_all = opened->journal.read(RowNumber(), each);
  CHECK(read_all.ok() || !read_all.error().message.empty());
  return 0;
}
