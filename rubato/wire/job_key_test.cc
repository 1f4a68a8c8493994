#include "rubato/wire/job_key.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace rubato::wire {
namespace {

const std::string kSecret(64, 'a');

TEST(JobKey, EveryJobStartAndRoundHasItsOwnSecret) {
  const JobKey key = key_of_round(kSecret, "pearl", 2, 3);
  EXPECT_EQ(key, key_of_round(kSecret, "pearl", 2, 3));
  EXPECT_NE(key.secret, key_of_round(kSecret, "pearl", 2, 4).secret);
  EXPECT_NE(key.secret, key_of_round(kSecret, "pearl", 3, 3).secret);
  EXPECT_NE(key.secret, key_of_round(kSecret, "coral", 2, 3).secret);
  EXPECT_NE(key.secret, key_of_round(std::string(64, 'b'), "pearl", 2, 3).secret);
  EXPECT_NE(key.secret, secret_of_share(kSecret, share_identity("pearl", 2, "3")));
}

TEST(JobKey, FindsTheWorkersOfItsRoundAndNobodyElse) {
  const JobKey key = key_of_round(kSecret, "pearl", 2, 3);
  EXPECT_EQ(worker_key(key, 7).identity, "pearl/2/3/7");
  EXPECT_EQ(worker_of(key, "pearl/2/3/7"), std::optional<Uid>(7));
  for (const char* other : {"", "pearl/2/3/", "pearl/2/3/0", "pearl/2/3/-1", "pearl/2/3/x",
                            "pearl/2/2/7", "pearl/1/3/7", "coral/2/3/7", "pearl/2/share/7"}) {
    EXPECT_FALSE(worker_of(key, other).has_value()) << other;
    EXPECT_FALSE(find_worker_key(key)(other).has_value()) << other;
  }
  EXPECT_EQ(find_worker_key(key)("pearl/2/3/7")->secret, worker_key(key, 7).secret);
}

TEST(JobKey, ComesBackAsItWasAndRefusesEverythingElse) {
  const JobKey key = key_of_round(kSecret, "pearl", 2, 3);
  EXPECT_EQ(*parse_job_key(to_json(key)), key);
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, Json>>{{"job", ""},
                                                 {"job", "a/b"},
                                                 {"start", -1},
                                                 {"round", "3"},
                                                 {"secret", "abc"},
                                                 {"secret", std::string(64, 'X')},
                                                 {"more", 1}}) {
    Json json = to_json(key);
    json[name] = value;
    EXPECT_FALSE(parse_job_key(json).ok()) << json;
  }
}

TEST(JobKey, IsReadFromAFileOfThisUserAlone) {
  const JobKey key = key_of_round(kSecret, "pearl", 2, 3);
  const std::string path = testing::TempDir() + "job_key_test";
  std::ofstream(path) << to_json(key).dump();
  chmod(path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP);
  EXPECT_FALSE(read_job_key(path).ok());
  chmod(path.c_str(), S_IRUSR | S_IWUSR);
  const auto read = read_job_key(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, key);
  std::remove(path.c_str());
  EXPECT_FALSE(read_job_key(path).ok());
}

}  // namespace
}  // namespace rubato::wire
