#include "rubato/elastic/checkpoint_rounds.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

namespace rubato::elastic {
namespace {

using member::CheckpointName;

class CheckpointRoundsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/roundsXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static CheckpointContent content(std::int64_t step, std::int64_t recovery) {
    CheckpointContent content;
    content.about = {{"plan", 1}, {"revision", 0}, {"step", step}, {"recovery", recovery}};
    return content;
  }
  // The step that the round begins with; -1: nothing; -2: a later round has the directory.
  std::int64_t claim(const CheckpointRound& round) {
    auto claimed = claim_checkpoints(directory_, round, 1);
    EXPECT_TRUE(claimed.ok()) << claimed.error().message;
    if (!*claimed) return -2;
    return (*claimed)->base ? (*claimed)->base->age.step : -1;
  }
  bool write(const CheckpointRound& round, std::int64_t step, std::int64_t recovery = 0,
             member::Uid uid = 1) {
    return write_checkpoint(directory_, round, uid, content(step, recovery)).ok();
  }
  std::int64_t newest() {
    const auto loaded = load_newest(directory_);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return *loaded ? (*loaded)->age.step : -1;
  }
  std::set<std::string> files() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().extension() == ".ckpt") names.insert(entry.path().filename().string());
    }
    return names;
  }

  std::string directory_;
};

const CheckpointRound kFirst{"pearl", 3, 1};
const CheckpointRound kSecond{"pearl", 3, 2};

TEST(CheckpointNames, ReadBackAsWritten) {
  const CheckpointName name{4, 2, 123, {5, 1}, 3};
  EXPECT_EQ(to_text(name), "round-000000000004.2-step-000000000123-g5.1-u3.ckpt");
  EXPECT_EQ(parse_checkpoint_name(to_text(name)), name);
  const CheckpointName base = member::base_of_round(name, 5, 9);
  EXPECT_EQ(to_text(base), "round-000000000005.base-step-000000000123-g5.1-u9.ckpt");
  EXPECT_EQ(parse_checkpoint_name(to_text(base)), base);
  for (const char* other : {"", "step-000000000123.ckpt", "round-4.2-step-123-g5.1-u3.ckpt",
                            "round-000000000004.2-step-000000000123-g5.1-u3.ckpt.new",
                            "round-000000000004.-2-step-000000000123-g5.1-u3.ckpt",
                            "round-000000000004.2-step-000000000123-g5.1-u03.ckpt"}) {
    EXPECT_EQ(parse_checkpoint_name(other), std::nullopt) << other;
  }
}

TEST_F(CheckpointRoundsTest, ARoundBeginsWithTheNewestOfTheLast) {
  EXPECT_EQ(claim(kFirst), -1);
  EXPECT_TRUE(write(kFirst, 10));
  EXPECT_TRUE(write(kFirst, 20));
  EXPECT_TRUE(write(kFirst, 30));
  EXPECT_EQ(files().size(), 2U) << "the newest two are kept";
  EXPECT_EQ(newest(), 30);
  EXPECT_EQ(claim(kSecond), 30);
  EXPECT_EQ(newest(), 30) << "of the base";
}

TEST_F(CheckpointRoundsTest, AZombieOfAnEarlierRoundCountsForNobody) {
  EXPECT_EQ(claim(kFirst), -1);
  EXPECT_TRUE(write(kFirst, 10));
  EXPECT_EQ(claim(kSecond), 10);
  EXPECT_FALSE(write(kFirst, 50)) << "it looks first";
  // It was frozen after it had looked.
  const std::string late = directory_ + "/round-000000000001.0-step-000000000060-g1.0-u1.ckpt";
  std::filesystem::copy_file(directory_ + "/" + *files().begin(), late);
  EXPECT_EQ(newest(), 10);
  EXPECT_TRUE(write(kSecond, 12));
  EXPECT_EQ(newest(), 12);
  EXPECT_FALSE(std::filesystem::exists(late));
}

TEST_F(CheckpointRoundsTest, AZombieMayRemoveItsOwnFiles) {
  EXPECT_EQ(claim(kFirst), -1);
  EXPECT_TRUE(write(kFirst, 10));
  EXPECT_EQ(claim(kSecond), 10);
  for (const std::string& name : files()) {
    if (name.starts_with("round-000000000001.")) std::filesystem::remove(directory_ + "/" + name);
  }
  EXPECT_EQ(newest(), 10);
}

TEST_F(CheckpointRoundsTest, ARoundThatBeganWithNothingIsNotGivenWhatCameLater) {
  EXPECT_EQ(claim(kFirst), -1);
  EXPECT_TRUE(write(kFirst, 10));
  std::filesystem::remove(directory_ + "/" + *files().begin());
  EXPECT_EQ(claim(kSecond), -1);
  std::ofstream(directory_ + "/round-000000000001.0-step-000000000010-g1.0-u1.ckpt") << "late";
  EXPECT_EQ(newest(), -1);
}

TEST_F(CheckpointRoundsTest, AfterARecoveryTheLowerStepIsNewer) {
  EXPECT_EQ(claim(kFirst), -1);
  EXPECT_TRUE(write(kFirst, 20, 0, 1));
  EXPECT_TRUE(write(kFirst, 19, 1, 2)) << "an excluded leader was one step ahead";
  EXPECT_EQ(newest(), 19);
}

TEST_F(CheckpointRoundsTest, AFounderThatComesTooLateGetsNothing) {
  EXPECT_EQ(claim(kSecond), -1);
  EXPECT_EQ(claim(kFirst), -2);
  EXPECT_EQ(claim({"other", 0, 1}), -1) << "another job takes the directory over";
  EXPECT_FALSE(write(kSecond, 5));
}

TEST_F(CheckpointRoundsTest, AJobMayGoOnOnOneMachineAndBack) {
  CheckpointContent plain = content(5, 0);
  plain.about["start"] = *claim_checkpoints(directory_, CheckpointOwner{"token", 1}).value();
  ASSERT_TRUE(write_checkpoint(directory_, plain).ok());
  EXPECT_EQ(claim(kFirst), 5) << "an older directory opens";
  EXPECT_TRUE(write(kFirst, 9));
  EXPECT_EQ(newest(), 9);
  plain = content(12, 0);
  plain.about["start"] = *claim_checkpoints(directory_, CheckpointOwner{"token", 2}).value();
  EXPECT_EQ(newest(), 9);
  ASSERT_TRUE(write_checkpoint(directory_, plain).ok());
  EXPECT_EQ(newest(), 12);
  EXPECT_EQ(claim(kSecond), 12);
}

}  // namespace
}  // namespace rubato::elastic
