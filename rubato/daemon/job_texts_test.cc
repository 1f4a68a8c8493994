#include "rubato/daemon/job_texts.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "rubato/base/json.h"
#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

JobFile file_of_size(const std::string& filling = "x") {
  JobFile file;
  file.command = {"/opt/train", "--list"};
  for (int i = 0; i < 5000; ++i) file.command.push_back(filling + std::to_string(i));
  file.env["LEVEL"] = "3";
  file.secrets["KEY"] = "/data/key";
  return file;
}

struct JobTextsTest : testing::Test {
  MemoryDirectory directory;
  JobTexts texts{directory.path() / "texts"};

  Digest keep(const JobFile& file) {
    const std::string text = text_of(file).value();
    const Digest digest = digest_of_text(text);
    EXPECT_TRUE(texts.keep(digest, text));
    return digest;
  }
};

TEST_F(JobTextsTest, WhatIsKeptIsLoadedWhole) {
  const Digest digest = keep(file_of_size());
  EXPECT_EQ(keep(file_of_size()), digest) << "the same again is the same file";
  const auto loaded = texts.load(digest);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(text_of(*loaded).value(), text_of(file_of_size()).value());
  const auto mode = std::filesystem::status(texts.path_of(digest)).permissions();
  EXPECT_EQ(static_cast<unsigned>(mode), 0600U);
}

TEST_F(JobTextsTest, WhatIsNotThereOrWasChangedIsSaid) {
  const Digest digest = keep(file_of_size());
  std::ofstream(texts.path_of(digest), std::ios::app) << " ";
  const auto changed = texts.load(digest);
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().message.find("not what was stored"), std::string::npos);
  texts.remove(digest);
  EXPECT_FALSE(std::filesystem::exists(texts.path_of(digest)));
  texts.remove(digest);
  const auto missing = texts.load(digest);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
}

TEST_F(JobTextsTest, AStartRemovesWhatNobodyNeeds) {
  const Digest needed = keep(file_of_size("a"));
  const Digest other = keep(file_of_size("b"));
  std::ofstream(texts.path_of(other) + ".new") << "half";
  texts.remove_all_but({needed});
  EXPECT_TRUE(texts.load(needed));
  EXPECT_FALSE(texts.load(other));
  EXPECT_FALSE(std::filesystem::exists(texts.path_of(other) + ".new"));
  JobTexts(directory.path() / "none").remove_all_but({});
}

TEST_F(JobTextsTest, AShortenedFileIsAJobFile) {
  const JobFile file = shortened(file_of_size());
  EXPECT_LT(text_of(file).value().size(), 2 * kShortCommand);
  EXPECT_EQ(file.command.front(), "/opt/train");
  EXPECT_TRUE(file.env.empty() && file.secrets.empty());
  EXPECT_TRUE(read_job(to_json(file), "it"));

  // Cut between two characters, also in the first word.
  JobFile one;
  one.command.emplace_back();
  for (int i = 0; i < 1000; ++i) one.command[0] += "\xe2\x82\xac";
  const JobFile cut = shortened(one);
  ASSERT_EQ(cut.command.size(), 1U);
  EXPECT_EQ(cut.command[0].size(), kShortCommand / 3 * 3);
  EXPECT_TRUE(read_job(to_json(cut), "it"));

  JobFile small;
  small.command = {"a", "b"};
  EXPECT_EQ(shortened(small).command, small.command);
}

}  // namespace
}  // namespace rubato::daemon
