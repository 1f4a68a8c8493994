#include "rubato/launch/roster_files.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>

#include "rubato/launch/roster_master.h"

namespace rubato::launch {
namespace {

class RosterFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/rosterXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern + "/roster";
  }
  void TearDown() override { std::filesystem::remove_all(directory_.parent_path()); }

  std::unique_ptr<RosterFiles> open() {
    return std::move(RosterFiles::open(directory_.string()).value());
  }

  std::filesystem::path directory_;
};

Roster busy() {
  Roster roster;
  roster.epoch = 4;
  roster = with_worker(roster, "a1", 3, "0.1");
  roster = with_worker(roster, "a2", 4, "1.0");
  roster = with_worker(roster, "a2", 6, "1.1");
  roster = with_plan(roster, {3, 4});
  roster = with_gone(roster, {3});
  roster = with_founder(roster, 4);
  roster = with_admitted(roster, "a1", {"4711", "x"});
  roster.run = {7,
                Place{Generation(9), {"1.0"}, std::nullopt, 2, {{"a2", "n", {"1.0"}}}, {"a1"}},
                Generation(11),
                1,
                2,
                3,
                true};
  return roster;
}

TEST(RosterJson, ReadsBackAsWritten) {
  EXPECT_EQ(parse_roster(to_json(Roster())).value(), Roster());
  EXPECT_EQ(parse_roster(to_json(busy())).value(), busy());
}

TEST(RosterJson, WhatIsWrongIsRefused) {
  const auto why = [](const char* field, const Json& value) {
    Json json = to_json(busy());
    json[field] = value;
    const auto parsed = parse_roster(json);
    return parsed ? "" : parsed.error().message;
  };
  EXPECT_EQ(why("round", 0), "roster.round: must be a whole number from 1 to 9223372036854775806");
  EXPECT_EQ(why("gone", {0}),
            "roster.gone[0]: must be a whole number from 1 to 9223372036854775807");
  EXPECT_EQ(why("more", 1), "roster: has the unknown field \"more\"");
  const Json worker = {{"uid", 1}, {"share", "a"}, {"slot", ""}};
  EXPECT_EQ(why("workers", Json::array({worker, worker})), "roster.workers[1]: is there twice");
}

TEST_F(RosterFilesTest, TheNextMasterReadsWhatTheLastOneWrote) {
  std::string secret;
  Roster written;
  {
    const auto files = open();
    RosterMaster master(*files, files->newest());
    EXPECT_EQ(master.roster().epoch, 1);
    ASSERT_TRUE(master.share_said({1, "a", 0, {}, {}}));
    ASSERT_TRUE(master.add_worker("a", 5, "0.1"));
    ASSERT_TRUE(master.plan({5}));
    written = master.roster();
    secret = files->secret();
  }
  const auto files = open();
  EXPECT_EQ(files->secret(), secret);
  const RosterMaster master(*files, files->newest());
  Roster expected = written;
  expected.epoch = 2;
  EXPECT_EQ(master.roster(), expected);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "roster-1.json"));
}

TEST_F(RosterFilesTest, AReplacedMasterWritesNothingMoreThatCounts) {
  const auto first = open();
  RosterMaster before(*first, first->newest());
  ASSERT_TRUE(before.plan({}));
  const auto second = open();
  // Its version is on the disk, but it was not said, and the next master has its own.
  EXPECT_FALSE(before.give_up());
  EXPECT_TRUE(before.ended());
  RosterMaster after(*second, second->newest());
  EXPECT_FALSE(after.ended());
  EXPECT_EQ(after.roster().epoch, 2);
  EXPECT_FALSE(after.roster().ending);
  EXPECT_TRUE(after.plan({}));
}

TEST_F(RosterFilesTest, AMasterThatNeedNotWriteNoticesToo) {
  const auto first = open();
  RosterMaster before(*first, first->newest());
  before.read_epoch();
  EXPECT_FALSE(before.ended());
  const auto second = open();
  before.read_epoch();
  EXPECT_TRUE(before.ended());
}

TEST_F(RosterFilesTest, AMasterThatDiedBeforeItsFirstVersionIsSkipped) {
  {
    const auto files = open();
    RosterMaster master(*files, files->newest());
    ASSERT_TRUE(master.plan({}));
  }
  (void)open();
  const auto files = open();
  const RosterMaster master(*files, files->newest());
  EXPECT_FALSE(master.ended());
  EXPECT_EQ(master.roster().epoch, 3);
  EXPECT_EQ(master.roster().plan.number, 1);
}

TEST_F(RosterFilesTest, DamageIsSaidInOneSentence) {
  {
    const auto files = open();
    const RosterMaster master(*files, files->newest());
  }
  const std::string path = (directory_ / "roster-1.json").string();
  std::ofstream(path) << "{}";
  EXPECT_EQ(RosterFiles::open(directory_.string()).error().message, path + " is not a roster");
  std::ofstream(path) << R"({"number":1,"roster":{}})";
  EXPECT_EQ(RosterFiles::open(directory_.string()).error().message,
            fmt::format("{}: roster: lacks the field \"epoch\"", path));
}

TEST_F(RosterFilesTest, ASecondProcessWithANameOfAShareIsNotAdmitted) {
  {
    const auto files = open();
    RosterMaster master(*files, files->newest());
    EXPECT_TRUE(master.admit({1, "a", 0, {}, {}, "17", "x"}));
    EXPECT_TRUE(master.admit({2, "a", 0, {}, {}, "17", "x"}));
    EXPECT_FALSE(master.admit({1, "a", 0, {}, {}, "18", "y"}));
    EXPECT_FALSE(master.admit({1, "a", 0, {}, {}, "17", "z"})) << "it was started again";
  }
  const auto files = open();
  RosterMaster master(*files, files->newest());
  EXPECT_FALSE(master.admit({1, "a", 0, {}, {}, "18", "y"}));
  EXPECT_TRUE(master.admit({1, "a", 0, {}, {}, "17", "x"}));
  ASSERT_TRUE(master.begin_start(8));
  EXPECT_TRUE(master.admit({1, "a", 0, {}, {}, "18", "y"}));
}

}  // namespace
}  // namespace rubato::launch
