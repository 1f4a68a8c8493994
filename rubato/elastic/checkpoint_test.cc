#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>
#include <rapidcheck/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/random.h"
#include "rubato/elastic/checkpoint_writer.h"

namespace rubato::elastic {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "checkpoint-XXXXXX";
    CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().filename() != ".lock") all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

  std::string path;
};

// Some content whose every byte is a function of the step.
struct Sample {
  explicit Sample(std::int64_t step, std::size_t floats = 13, std::int64_t plan = 1,
                  std::int64_t revision = 0)
      : weights(floats), text("cursor of step " + std::to_string(step)) {
    std::iota(weights.begin(), weights.end(), static_cast<float>(step));
    const auto bytes = std::as_bytes(std::span(weights));
    const auto half = bytes.size() / 2;
    content.about = {
        {"plan", plan}, {"revision", revision}, {"step", step}, {"loss", 1.5}, {"note", "a"}};
    content.sections = {
        {"weights", {{"type", "float32"}}, {bytes.first(half), bytes.subspan(half)}},
        {"empty", nullptr, {}},
        {"text", nullptr, {std::as_bytes(std::span(text))}}};
  }

  std::vector<float> weights;
  std::string text;
  CheckpointContent content;
};

void expect_content(const Loaded& loaded, const Sample& sample) {
  EXPECT_EQ(loaded.about, sample.content.about);
  EXPECT_EQ(loaded.age.step, sample.content.about["step"].get<std::int64_t>());
  ASSERT_EQ(loaded.sections.size(), 3U);
  const auto* weights = loaded.find("weights");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->head["type"], "float32");
  ASSERT_EQ(weights->body.size(), sample.weights.size() * sizeof(float));
  const auto expected = std::as_bytes(std::span(sample.weights));
  EXPECT_TRUE(std::equal(weights->body.begin(), weights->body.end(), expected.begin()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weights->body.data()) % 64, 0U);
  EXPECT_TRUE(loaded.find("empty")->body.empty());
  const auto text = loaded.find("text")->body;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(text.data()), text.size()), sample.text);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(text.data()) % 64, 0U);
  EXPECT_EQ(loaded.find("other"), nullptr);
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string written(const Folder& folder, const Sample& sample, int keep = kCheckpointsKept) {
  const auto path = write_checkpoint(folder.path, sample.content, keep);
  EXPECT_TRUE(path.ok()) << (path.ok() ? "" : path.error().message);
  return path.ok() ? *path : "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// --- the checksum ---

RC_GTEST_PROP(CheckpointChecksum, PiecesDoNotMatter, (std::uint64_t seed)) {
  Random random(seed);
  std::vector<std::byte> bytes(random.below(600));
  for (auto& b : bytes) b = static_cast<std::byte>(random.next());
  Pieces pieces;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = std::min<std::size_t>(random.below(70), bytes.size() - at);
    pieces.push_back(std::span(bytes).subspan(at, size));
    at += size;
  }
  RC_ASSERT(checksum({bytes}) == checksum(pieces));
  RC_ASSERT(checksum_v1({bytes}) == checksum_v1(pieces));
}

void expect_sees_everything(const std::function<std::uint64_t(const Pieces&)>& sum) {
  std::vector<std::byte> bytes(100);
  std::vector<std::uint64_t> seen;
  const auto note = [&](std::size_t size) { seen.push_back(sum({std::span(bytes).first(size)})); };
  for (std::size_t size = 0; size <= bytes.size(); ++size) note(size);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    note(bytes.size());
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(CheckpointChecksum, SeesEveryBitAndEveryLength) {
  expect_sees_everything(checksum);
  expect_sees_everything(checksum_v1);
}

// --- writing and reading ---

TEST(Checkpoint, IsReadAsWritten) {
  const Folder folder;
  for (const std::size_t floats : {0, 1, 13, 16, 100'000}) {
    const Sample sample(123, floats);
    EXPECT_EQ(written(folder, sample), folder.path + "/step-000000000123.ckpt");
    const auto loaded = load_newest(folder.path);
    ASSERT_TRUE(loaded.ok() && loaded->has_value());
    expect_content(**loaded, sample);
    EXPECT_TRUE((*loaded)->skipped.empty());
  }
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(Checkpoint, NothingThere) {
  const Folder folder;
  for (const auto& path : {folder.path, folder.path + "/missing"}) {
    const auto loaded = load_newest(path);
    ASSERT_TRUE(loaded.ok());
    EXPECT_FALSE(loaded->has_value());
  }
}

TEST(Checkpoint, MakesItsDirectory) {
  const Folder folder;
  const auto path = write_checkpoint(folder.path + "/a/b", Sample(5).content);
  ASSERT_TRUE(path.ok());
  EXPECT_TRUE(load_newest(folder.path + "/a/b")->has_value());
}

TEST(Checkpoint, ADirectoryThatCannotBeIsASentence) {
  const auto path = write_checkpoint("/proc/none", Sample(5).content);
  ASSERT_FALSE(path.ok());
  EXPECT_TRUE(contains(path.error().message, "/proc/none")) << path.error().message;
}

TEST(Checkpoint, KeepsTheNewest) {
  const Folder folder;
  for (std::int64_t step = 1; step <= 5; ++step) written(folder, Sample(step), 3);
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"step-000000000003.ckpt", "step-000000000004.ckpt",
                                      "step-000000000005.ckpt"}));
  written(folder, Sample(6), 1);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"step-000000000006.ckpt"}));
}

TEST(Checkpoint, TheGenerationComesBeforeTheStep) {
  const Folder folder;
  written(folder, Sample(120, 13, 1, 0));
  written(folder, Sample(110, 13, 1, 1));  // continued from an earlier state
  const auto loaded = load_newest(folder.path);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->age.step, 110);
  EXPECT_EQ((*loaded)->age.revision, 1);
  written(folder, Sample(111, 13, 1, 1), 2);
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"step-000000000110.ckpt", "step-000000000111.ckpt"}))
      << "the abandoned line of history goes first";
}

TEST(Checkpoint, AnOlderGenerationIsRefused) {
  const Folder folder;
  written(folder, Sample(10, 13, 2, 3));
  const auto before = read_all(folder.path + "/step-000000000010.ckpt");
  for (const auto& [plan, revision] : {std::pair{2, 2}, {1, 9}}) {
    const auto refused = write_checkpoint(folder.path, Sample(11, 13, plan, revision).content);
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(contains(refused.error().message, "refused")) << refused.error().message;
    EXPECT_TRUE(contains(refused.error().message, "(2, 3)")) << refused.error().message;
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"step-000000000010.ckpt"}));
  EXPECT_EQ(read_all(folder.path + "/step-000000000010.ckpt"), before);
  written(folder, Sample(11, 13, 2, 3));
  written(folder, Sample(12, 13, 3, 0));
}

// Whether the lock of the directory is free.
bool can_lock(const std::string& directory) {
  const int fd = ::open((directory + "/.lock").c_str(), O_RDWR | O_CLOEXEC);
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return free;
}

Sample of_start(std::int64_t start, std::int64_t step, std::int64_t plan) {
  Sample sample(step, 13, plan);
  sample.content.about["start"] = start;
  return sample;
}

TEST(Checkpoint, TheStartComesBeforeTheGeneration) {
  const Folder folder;
  written(folder, Sample(50, 13, 9, 9));  // of a job whose starts were not counted
  written(folder, of_start(3, 120, 7));
  written(folder, of_start(4, 110, 1));
  const auto loaded = load_newest(folder.path);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->age.start, 4);
  EXPECT_EQ((*loaded)->age.step, 110);
  // It continues alone, with plans and steps far beyond those of the new start.
  const auto refused = write_checkpoint(folder.path, of_start(3, 999, 99).content);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(contains(refused.error().message, "start 4 has replaced it"))
      << refused.error().message;
  written(folder, of_start(4, 111, 1), 2);
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"step-000000000110.ckpt", "step-000000000111.ckpt"}));
}

std::int64_t claimed(const Folder& folder, const std::string& job, std::int64_t start) {
  const auto claim = claim_checkpoints(folder.path, {job, start});
  EXPECT_TRUE(claim.ok()) << claim.error().message;
  return claim.ok() ? claim->value_or(-1) : -2;
}

TEST(Checkpoint, AClaimShutsOutTheOwnerBefore) {
  const Folder folder;
  written(folder, Sample(9, 13, 9, 9));  // from a version without claims
  EXPECT_EQ(claimed(folder, "a", 3), 1);
  EXPECT_EQ(claimed(folder, "a", 3), 1) << "another worker of the same start";
  EXPECT_FALSE(write_checkpoint(folder.path, Sample(11, 13, 9, 9).content).ok());
  written(folder, of_start(1, 10, 1));
  EXPECT_EQ(claimed(folder, "a", 12), 2);
  EXPECT_EQ(claimed(folder, "a", 3), -1) << "of a start that was replaced";
  EXPECT_FALSE(write_checkpoint(folder.path, of_start(1, 11, 9).content).ok())
      << "before the new one has written anything";
  const auto loaded = load_newest(folder.path);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->age.step, 10);
  written(folder, of_start(2, 11, 1));
  EXPECT_EQ(claimed(folder, "b", 1), 3) << "another job goes on from there";
  EXPECT_FALSE(write_checkpoint(folder.path, of_start(2, 12, 1).content).ok());
  written(folder, of_start(3, 5, 1));
  std::filesystem::remove(folder.path + "/.lock");
  EXPECT_EQ(claimed(folder, "c", 1), 4) << "newer than all that is there";
}

TEST(Checkpoint, AClaimMakesItsDirectory) {
  const Folder folder;
  EXPECT_TRUE(claim_checkpoints(folder.path + "/new/one", {"a", 1}).ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder.path + "/new/one"));
  std::ofstream(folder.path + "/file") << "x";
  EXPECT_FALSE(claim_checkpoints(folder.path + "/file", {"a", 1}).ok());
}

// The worker of an old start is stopped in the middle of a write. It wakes up long after the new
// start.
TEST(CheckpointRace, AWriterThatSleptThroughAStartIsRefused) {
  const Folder folder;
  ASSERT_EQ(claimed(folder, "job", 7), 1);
  written(folder, of_start(1, 10, 1));
  const pid_t old = ::fork();
  if (old == 0) {
    for (std::int64_t step = 20;; ++step) {
      const Sample sample = of_start(1, step, step);
      if (!write_checkpoint(folder.path, sample.content)) ::_exit(7);
    }
  }
  while (std::filesystem::exists(folder.path + "/step-000000000010.ckpt")) ::usleep(1000);
  ::kill(old, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(old, &status, WUNTRACED), old);
  // While the sleeping worker holds the lock, nobody can claim the directory. It is woken until it
  // has released the lock.
  while (!can_lock(folder.path)) {
    ::kill(old, SIGCONT);
    ::usleep(2000);
    ::kill(old, SIGSTOP);
    ASSERT_EQ(::waitpid(old, &status, WUNTRACED), old);
  }
  ASSERT_EQ(claimed(folder, "job", 8), 2);
  const auto resumed = load_newest(folder.path);
  ASSERT_TRUE(resumed.ok() && resumed->has_value());
  written(folder, of_start(2, 5, 1));
  const auto before = folder.names();
  ::kill(old, SIGCONT);
  ASSERT_EQ(::waitpid(old, &status, 0), old);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << "it must end refused";
  const auto loaded = load_newest(folder.path);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->age.start, 2);
  EXPECT_EQ((*loaded)->age.step, 5);
  for (const std::string& name : folder.names()) {
    EXPECT_EQ(std::count(before.begin(), before.end(), name), 1) << name;
  }
}

TEST(Checkpoint, LeftoversOfTheDeadAreRemovedAndThoseOfTheLivingAreNot) {
  const Folder folder;
  const auto dead = folder.path + "/step-000000000001.ckpt.1-0.tmp";
  write_all(dead, "half a checkpoint");
  const auto living = folder.path + "/step-000000000002.ckpt.1-0.tmp";
  write_all(living, "half a checkpoint");
  std::FILE* holder = std::fopen(living.c_str(), "re");
  ASSERT_NE(holder, nullptr);
  ASSERT_EQ(::flock(::fileno(holder), LOCK_EX), 0);
  written(folder, Sample(3));
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(living));
  std::fclose(holder);
  written(folder, Sample(4));
  EXPECT_FALSE(std::filesystem::exists(living));
}

// --- damage ---

// Expects that the damaged newest file is skipped, with a reason, and the one before it is used.
void expect_passed_over(const Folder& folder, const std::string& path, const Sample& previous) {
  const auto direct = load_checkpoint(path);
  ASSERT_FALSE(direct.ok());
  EXPECT_TRUE(contains(direct.error().message, path)) << direct.error().message;
  const auto loaded = load_newest(folder.path);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->about, previous.content.about);
  ASSERT_EQ((*loaded)->skipped.size(), 1U);
  EXPECT_EQ((*loaded)->skipped[0].path, path);
  EXPECT_EQ((*loaded)->skipped[0].reason, direct.error().message);
}

TEST(CheckpointDamage, EveryTruncationIsSeen) {
  const Folder folder;
  const Sample previous(1);
  written(folder, previous);
  const auto path = written(folder, Sample(2));
  const auto whole = read_all(path);
  ASSERT_GT(whole.size(), 300U);
  for (std::size_t size = 0; size < whole.size() && !::testing::Test::HasFailure(); ++size) {
    SCOPED_TRACE(size);
    write_all(path, whole.substr(0, size));
    expect_passed_over(folder, path, previous);
  }
  write_all(path, whole + std::string(64, '\0'));
  expect_passed_over(folder, path, previous);
  write_all(path, whole);
  EXPECT_TRUE(load_checkpoint(path).ok());
}

TEST(CheckpointDamage, EveryFlippedBitIsSeen) {
  const Folder folder;
  const Sample previous(1);
  written(folder, previous);
  const auto path = written(folder, Sample(2));
  const auto whole = read_all(path);
  for (std::size_t bit = 0; bit < 8 * whole.size() && !::testing::Test::HasFailure(); ++bit) {
    SCOPED_TRACE(bit);
    auto flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write_all(path, flipped);
    expect_passed_over(folder, path, previous);
  }
}

// --- format version 1 ---

// A file that the code before version 2 wrote. All bytes that are not listed here are zeros.
std::string of_version_1() {
  std::string file("RUBATOCK\x01\0\0\0\xf6\0\0\0", 16);
  file += std::string("\x2a\x75\xa9\xf1\x45\xd0\xda\x64", 8);
  file +=
      R"({"about":{"start":1,"plan":2,"revision":3,"step":40,"note":"written by version 1"},"sections":[{"name":"0","head":"first","bytes":12,"checksum":11487369015698931594},{"name":"1","head":{"shape":[5,8]},"bytes":40,"checksum":12898754198361781100}]})";
  file.resize(0x140);
  file += std::string("\0\0\xc0\x3f\0\0\x10\xc0\0\0\x40\x40", 12);  // 1.5, -2.25, 3
  file.resize(0x180);
  file += "forty bytes or so, and not one word more";
  file.resize(0x1c0);
  return file;
}
// The lock file beside it: start 1 of the directory, start 4 of the job "job-a".
constexpr const char* kLockOfVersion1 =
    "00000000000000000001 00000000000000000004 02800297858900740294\n";

TEST(CheckpointVersion1, IsRead) {
  const Folder folder;
  write_all(folder.path + "/step-000000000040.ckpt", of_version_1());
  const auto newest = load_newest(folder.path);
  ASSERT_TRUE(newest.ok() && newest->has_value());
  const Loaded& loaded = **newest;
  EXPECT_EQ(loaded.age, (CheckpointAge{1, 2, 3, 40}));
  EXPECT_EQ(loaded.about.at("note"), "written by version 1");
  ASSERT_EQ(loaded.sections.size(), 2U);
  EXPECT_EQ(loaded.sections[0].head, "first");
  std::vector<float> floats(3);
  ASSERT_EQ(loaded.sections[0].body.size(), 12U);
  std::memcpy(floats.data(), loaded.sections[0].body.data(), 12);
  EXPECT_EQ(floats, (std::vector<float>{1.5F, -2.25F, 3.0F}));
  EXPECT_EQ(loaded.sections[1].head, (Json{{"shape", {5, 8}}}));
  const auto text = loaded.sections[1].body;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(text.data()), text.size()),
            "forty bytes or so, and not one word more");
}

TEST(CheckpointVersion1, EveryFlippedBitIsSeen) {
  const Folder folder;
  const std::string whole = of_version_1();
  const std::string path = folder.path + "/step-000000000040.ckpt";
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write_all(path, flipped);
    EXPECT_FALSE(load_checkpoint(path).ok()) << "bit " << bit;
  }
}

TEST(CheckpointVersion1, ItsDirectoryGoesOnWithTheSameOwner) {
  const Folder folder;
  write_all(folder.path + "/step-000000000040.ckpt", of_version_1());
  write_all(folder.path + "/.lock", kLockOfVersion1);
  const auto again = claim_checkpoints(folder.path, {"job-a", 4});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, 1);
  const auto older = claim_checkpoints(folder.path, {"job-a", 3});
  ASSERT_TRUE(older.ok());
  EXPECT_EQ(*older, std::nullopt);
  CheckpointContent next;
  next.about = {{"start", 1}, {"plan", 2}, {"revision", 3}, {"step", 41}};
  ASSERT_TRUE(write_checkpoint(folder.path, next).ok());
  const auto newest = load_newest(folder.path);
  ASSERT_TRUE(newest.ok() && newest->has_value());
  EXPECT_EQ((*newest)->age.step, 41);
  EXPECT_TRUE((*newest)->skipped.empty());
}

TEST(CheckpointDamage, EachKindHasItsSentence) {
  const Folder folder;
  const auto path = written(folder, Sample(2));
  const auto whole = read_all(path);
  const auto message = [&](const std::string& bytes) {
    write_all(path, bytes);
    const auto loaded = load_checkpoint(path);
    return loaded.ok() ? "no error" : loaded.error().message;
  };
  const auto with = [&](std::size_t at, char byte) {
    auto bytes = whole;
    bytes[at] = byte;
    return bytes;
  };
  EXPECT_TRUE(contains(message("PK and so on, a different kind of file"), "not a checkpoint"));
  EXPECT_TRUE(contains(message(with(8, 3)), "has format version 3, and this Rubato reads up to 2"));
  EXPECT_TRUE(contains(message(with(30, '~')), "the checksum of its header"));
  EXPECT_TRUE(contains(message(with(whole.size() - 128, '~')), "the checksum of section"));
  EXPECT_TRUE(contains(message(with(whole.size() - 1, '~')), "between its sections"));
  EXPECT_TRUE(contains(message(whole.substr(0, 20)), "cut off after 20 bytes"));
  EXPECT_TRUE(contains(message(whole.substr(0, 40)), "inside its header"));
  EXPECT_TRUE(contains(message(whole.substr(0, whole.size() - 128)), "cut off after"));
  EXPECT_TRUE(contains(message(""), "cut off after 0 bytes"));
}

TEST(CheckpointDamage, IfNoneIsWholeTheOwnerDecides) {
  const Folder folder;
  for (std::int64_t step = 1; step <= 2; ++step) {
    const auto path = written(folder, Sample(step));
    auto bytes = read_all(path);
    bytes[bytes.size() - 128] ^= 1;  // the header is undamaged
    write_all(path, bytes);
  }
  const auto loaded = load_newest(folder.path);
  ASSERT_FALSE(loaded.ok());
  EXPECT_TRUE(contains(loaded.error().message, "none of its 2 checkpoints"))
      << loaded.error().message;
  EXPECT_TRUE(contains(loaded.error().message, "step-000000000002")) << loaded.error().message;
}

TEST(CheckpointDamage, WhatCannotBeReadNeitherRefusesNorIsRemoved) {
  const Folder folder;
  const auto path = folder.path + "/step-000000000001.ckpt";
  write_all(path, "RUBATOCK and then nonsense, nonsense, nonsense");
  for (std::int64_t step = 2; step <= 5; ++step) written(folder, Sample(step));
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(folder.names().size(), 3U);
  EXPECT_EQ(load_newest(folder.path)->value().age.step, 5);
}

// --- full disks and kills ---

// Runs in a child process, whose exit code is what `body` returns.
template <class Body>
pid_t start_child(const Body& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) ::_exit(body());
  return child;
}

int exit_code(pid_t child) {
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

template <class Body>
int in_child(const Body& body) {
  return exit_code(start_child(body));
}

// Writes a checkpoint that does not fit. Returns 0 if everything is as promised.
int write_too_much(const Folder& folder, const std::string& reason) {
  const auto failed = write_checkpoint(folder.path, Sample(2, 100'000).content);
  if (failed.ok()) return 1;
  const auto& message = failed.error().message;
  const bool clear = contains(message, reason) && contains(message, "step-000000000002.ckpt") &&
                     contains(message, "checkpoint of 400") && contains(message, "make room");
  if (!clear) {
    std::fprintf(stderr, "%s\n", message.c_str());
    return 2;
  }
  if (folder.names() != std::vector<std::string>{"step-000000000001.ckpt"}) return 3;
  const auto loaded = load_newest(folder.path);
  return loaded.ok() && loaded->has_value() && (*loaded)->age.step == 1 ? 0 : 4;
}

TEST(CheckpointFullDisk, ALimitOfFileSizes) {
  const Folder folder;
  written(folder, Sample(1));
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{100'000, 100'000};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 5;
              return write_too_much(folder, "File too large");
            }),
            0);
  written(folder, Sample(2, 100'000));
  EXPECT_EQ(load_newest(folder.path)->value().age.step, 2);
}

TEST(CheckpointFullDisk, ASmallFileSystem) {
  constexpr int kNotAllowed = 77;
  const Folder folder;
  const int code = in_child([&] {
    // In its own mount namespace, so that nothing is left behind.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.path.c_str(), "tmpfs", 0, "size=128k") != 0)
      return kNotAllowed;
    if (!write_checkpoint(folder.path, Sample(1).content)) return 6;
    return write_too_much(folder, "No space left on device");
  });
  if (code == kNotAllowed) GTEST_SKIP() << "mounting a file system is not allowed here";
  EXPECT_EQ(code, 0);
}

TEST(CheckpointKill, AtAnyMomentLeavesSomethingToLoad) {
  const Folder folder;
  const auto start = std::chrono::steady_clock::now();
  written(folder, Sample(0, 50'000));
  const std::chrono::duration<double, std::micro> one = std::chrono::steady_clock::now() - start;
  Random random(1);
  std::int64_t before = 0;
  // On a busy machine it may take long until a child writes anything.
  for (int round = 0; round < 40 || (before == 0 && round < 400); ++round) {
    const pid_t child = start_child([&] {
      for (std::int64_t step = before + 1;; ++step)
        if (!write_checkpoint(folder.path, Sample(step, 50'000).content)) return 1;
    });
    ::usleep(static_cast<useconds_t>(one.count() * random.log_uniform(0.1, 10)));
    ::kill(child, SIGKILL);
    ASSERT_EQ(exit_code(child), 1000 + SIGKILL) << "the child failed to write";
    const auto loaded = load_newest(folder.path);
    ASSERT_TRUE(loaded.ok() && loaded->has_value());
    EXPECT_TRUE((*loaded)->skipped.empty());
    EXPECT_GE((*loaded)->age.step, before);
    before = (*loaded)->age.step;
    expect_content(**loaded, Sample(before, 50'000));
  }
  EXPECT_GT(before, 0);
  written(folder, Sample(before + 1));
  EXPECT_EQ(folder.names().size(), 2U) << "temporaries of the killed are gone";
}

TEST(CheckpointRace, WritersOfTwoGenerationsLeaveTheNewerLine) {
  const Folder folder;
  const auto write_steps = [&](std::int64_t plan) {
    return start_child([&, plan] {
      for (std::int64_t step = 1; step <= 30; ++step) {
        const auto path = write_checkpoint(folder.path, Sample(step, 1000, plan).content);
        if (!path && !contains(path.error().message, "refused")) return 1;
      }
      return 0;
    });
  };
  const pid_t older = write_steps(1);
  const pid_t newer = write_steps(2);
  EXPECT_EQ(exit_code(older), 0);
  EXPECT_EQ(exit_code(newer), 0);
  const auto loaded = load_newest(folder.path);
  ASSERT_TRUE(loaded.ok() && loaded->has_value());
  EXPECT_EQ((*loaded)->age.plan, 2);
  EXPECT_EQ((*loaded)->age.step, 30);
}

// --- the writer ---

TEST(CheckpointWriter, WritesAndReleases) {
  const Folder folder;
  std::vector<std::string> paths;
  auto sample = std::make_shared<Sample>(7);
  const std::weak_ptr<Sample> watched = sample;
  CheckpointWriter writer(folder.path, 2, [&](const Result<std::string>& path) {
    paths.push_back(path.ok() ? *path : path.error().message);
  });
  auto content = sample->content;
  writer.begin(std::move(content), std::move(sample));
  writer.finish();
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(paths, (std::vector<std::string>{folder.path + "/step-000000000007.ckpt"}));
  writer.finish();
}

TEST(CheckpointWriter, TheNewestThatWaitsIsWritten) {
  const Folder folder;
  std::mutex mutex;
  std::condition_variable changed;
  bool first_done = false;
  bool go_on = false;
  int reports = 0;
  CheckpointWriter writer(folder.path, 9, [&](const Result<std::string>& path) {
    EXPECT_TRUE(path.ok());
    std::unique_lock lock(mutex);
    ++reports;
    first_done = true;
    changed.notify_all();
    changed.wait(lock, [&] { return go_on; });
  });
  const auto begin = [&](std::int64_t step) {
    const auto sample = std::make_shared<Sample>(step);
    writer.begin(sample->content, sample);
  };
  begin(1);
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return first_done; });
  }
  for (std::int64_t step = 2; step <= 5; ++step) begin(step);
  {
    const std::lock_guard lock(mutex);
    go_on = true;
  }
  changed.notify_all();
  writer.finish();
  EXPECT_EQ(reports, 2);
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"step-000000000001.ckpt", "step-000000000005.ckpt"}));
}

TEST(CheckpointWriter, ReportsErrorsAndFinishesWhenDestroyed) {
  const Folder folder;
  std::vector<bool> outcomes;
  {
    CheckpointWriter writer(
        folder.path, 2, [&](const Result<std::string>& path) { outcomes.push_back(path.ok()); });
    const auto begin = [&](std::int64_t plan) {
      const auto sample = std::make_shared<Sample>(7, 13, plan);
      writer.begin(sample->content, sample);
    };
    begin(2);
    writer.finish();
    begin(1);
    writer.finish();
    begin(2);
  }
  EXPECT_EQ(outcomes, (std::vector<bool>{true, false, true}));
}

}  // namespace
}  // namespace rubato::elastic
