#include "rubato/policy/all.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rubato::policy {
namespace {

using Names = std::vector<std::string>;

Names canonical(std::string_view text) {
  const auto chosen = parse_policies(text);
  if (!chosen) return {"error: " + chosen.error().message};
  Names names;
  for (const auto& policy : *chosen) names.push_back(policy.canonical);
  return names;
}

TEST(ParsePolicies, AnItemStartsAPolicyOrIsAKeyOfTheOneBefore) {
  EXPECT_EQ(canonical("fifo"), Names{"fifo"});
  EXPECT_EQ(canonical("fifo,tiresias-las:queues=2,limits=100,srtf"),
            (Names{"fifo", "tiresias-las:queues=2,limits=100", "srtf"}));
  EXPECT_EQ(canonical(" fifo , tiresias-las: queues = 2 , limits = 100 , srtf "),
            (Names{"fifo", "tiresias-las:queues=2,limits=100", "srtf"}));
  EXPECT_EQ(canonical("tiresias-las,promote=8"), Names{"tiresias-las:promote=8"})
      << "a key may also follow a policy without a colon";
  EXPECT_EQ(canonical("fifo,fifo,edf:count=peak,edf"),
            (Names{"fifo", "fifo", "edf:count=peak", "edf"}))
      << "one policy may run twice";
}

TEST(ParsePolicies, CanonicalNamesHaveOnlyWhatIsNotDefaultInOrderOfTheTable) {
  EXPECT_EQ(canonical("tiresias-las:limits=3250.0/7200"), Names{"tiresias-las"});
  EXPECT_EQ(canonical("tiresias-las:limits=3.25e3/7.2e3,queues=3,promote=0"),
            Names{"tiresias-las"});
  EXPECT_EQ(canonical("tiresias-las:promote=-0"), Names{"tiresias-las"});
  EXPECT_EQ(canonical("tiresias-las:promote=8.50,limits=5/6,queues=2"),
            Names{"tiresias-las:queues=2,limits=5/6,promote=8.5"});
  EXPECT_EQ(canonical("edf:count=largest"), Names{"edf"});
  EXPECT_EQ(canonical("afs-p:prior=1e3,find=scan"), Names{"afs-p:find=scan,prior=1000"});
  EXPECT_EQ(canonical("tiresias-gittins:samples=,quantum=3250"), Names{"tiresias-gittins"});
  EXPECT_EQ(canonical("tiresias-gittins:samples=a=b:c/d.csv"),
            Names{"tiresias-gittins:samples=a=b:c/d.csv"});
}

TEST(ParsePolicies, ValuesReachThePolicy) {
  const auto chosen = parse_policies("tiresias-gittins:quantum=7,limits=1.5/2e3,queues=2").value();
  ASSERT_EQ(chosen.size(), 1U);
  const KeyValues& values = *chosen[0].values;
  EXPECT_EQ(values.number("quantum"), 7);
  EXPECT_EQ(values.numbers("limits"), (std::vector<double>{1.5, 2000}));
  EXPECT_EQ(values.whole("queues"), 2);
  EXPECT_EQ(values.text("samples"), "");
}

TEST(ParsePolicies, EveryErrorIsOneSentence) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "unknown policy \"\""},
      {"fifo,", "unknown policy \"\""},
      {"fifo,,srtf", "unknown policy \"\""},
      {"tiresas-las", "did you mean tiresias-las?"},
      {"FIFO", "unknown policy \"FIFO\""},
      {"srt", "did you mean srtf?"},
      {"something-else-entirely", "\"rubato policies\" lists them all"},
      {"queues=2", "\"queues=2\" is a key, but no policy stands before it"},
      {"fifo:", "policy fifo: unknown key \"\"; it has no keys"},
      {"fifo,queues=2", "policy fifo: unknown key \"queues\"; it has no keys"},
      {"tiresias-las:queue=2",
       "unknown key \"queue\"; its keys are queues, limits, promote, order"},
      {"tiresias-las:queues", "key queues has no value; write queues=VALUE"},
      {"tiresias-las:queues=2,queues=2", "key queues is given twice"},
      {"tiresias-las:queues=0", "must be a whole number from 1 to 65"},
      {"tiresias-las:queues=66", "must be a whole number from 1 to 65"},
      {"tiresias-las:queues=2.5", "must be a whole number from 1 to 65"},
      {"tiresias-las:queues=", "must be a whole number from 1 to 65"},
      {"tiresias-las:limits=7200/3250", "must be ascending numbers above 0"},
      {"tiresias-las:limits=5/5", "must be ascending numbers above 0"},
      {"tiresias-las:limits=0/5", "must be ascending numbers above 0"},
      {"tiresias-las:limits=5/", "must be ascending numbers above 0"},
      {"tiresias-las:limits=nan", "must be ascending numbers above 0"},
      {"tiresias-las:limits=5/inf", "must be ascending numbers above 0"},
      {"tiresias-las:promote=-1", "must be a number from 0"},
      {"tiresias-las:promote=nan", "must be a number from 0"},
      {"edf:count=all", "must be one of largest, peak, trace"},
      {"edf:count=a\nb", "edf: count=\"a\\x0ab\" must be one of largest, peak, trace"},
      {"afs-l:prior=3", "unknown key \"prior\"; its keys are find"},
      {"gavel-las:packing=maybe", "must be one of off, on"},
      {"gavel-throughput:prices=1/-2", "must be numbers above 0 separated by '/'"},
      {"gavel-hierarchical:entities=ann:2/ann:3", "each name once"},
      {"gavel-hierarchical:entities=ann", "must be NAME:NUMBER"},
      {"\x01\xff,fifo", "unknown policy \"\\x01\\xff\""},
  };
  for (const auto& [text, part] : cases) {
    const auto chosen = parse_policies(text);
    ASSERT_FALSE(chosen.ok()) << text;
    const std::string& message = chosen.error().message;
    EXPECT_NE(message.find(part), std::string::npos) << text << " says: " << message;
    EXPECT_TRUE(std::none_of(message.begin(), message.end(), [](unsigned char c) {
      return c < 0x20 || c >= 0x7F;
    })) << message;
  }
  EXPECT_LT(parse_policies(std::string(100'000, 'x')).error().message.size(), 300U);
}

TEST(ParsePolicies, QueuesAndLimitsMustGoTogether) {
  const auto make = [](std::string_view text) {
    auto made = parse_policies(text).value().front().make({});
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_EQ(make("tiresias-las:queues=1"), "");
  EXPECT_EQ(make("tiresias-las:queues=2"), "") << "the first of the default limits";
  EXPECT_NE(make("tiresias-las:queues=4"), "");
  EXPECT_NE(make("tiresias-las:limits=100"), "");
  EXPECT_EQ(make("tiresias-las:queues=4,limits=1/2/3"), "");
}

TEST(ParsePolicies, UnreadableSamplesAreReported) {
  const auto chosen = parse_policies("tiresias-gittins:samples=nowhere.csv").value();
  const auto made =
      chosen.front().make({[](const std::string& path) -> Result<std::vector<double>> {
        return Error{path + ": no such file"};
      }});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "nowhere.csv: no such file");
}

TEST(AllPolicies, TheTableIsWhatTheIssueAsksFor) {
  std::set<std::string> names;
  for (const auto& entry : all_policies()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " stands there twice";
    EXPECT_FALSE(entry.summary.empty());
    EXPECT_FALSE(entry.knows.empty());
    const auto& groups = policy_groups();
    EXPECT_TRUE(std::any_of(groups.begin(), groups.end(), [&](const PolicyGroup& group) {
      return group.name == group_of(entry);
    })) << entry.name;
    for (const auto& key : entry.keys) {
      EXPECT_FALSE(key.help.empty());
      const auto canonical = key.canonical(key.fallback);
      ASSERT_TRUE(canonical.ok()) << entry.name << ": the default of " << key.name << " is wrong";
      EXPECT_EQ(*canonical, key.fallback);
    }
    EXPECT_TRUE(parse_policies(entry.name).value().front().make({}).ok()) << entry.name;
  }
  Names groups;
  for (const PolicyGroup& group : policy_groups()) {
    groups.emplace_back(group.name);
    EXPECT_TRUE(std::any_of(all_policies().begin(), all_policies().end(), [&](const auto& entry) {
      return group_of(entry) == group.name;
    })) << group.name;
  }
  EXPECT_EQ(groups, (Names{"rigid", "elastic", "deadlines", "heterogeneous", "fair", "learned"}));
  for (const auto* name : {"fifo",
                           "fifo-backfill",
                           "sjf",
                           "srtf",
                           "srsf",
                           "edf",
                           "edf-admission",
                           "tiresias-las",
                           "tiresias-gittins",
                           "afs-l",
                           "afs-p",
                           "gavel-las",
                           "gavel-ftf",
                           "gavel-makespan",
                           "gavel-throughput",
                           "gavel-min-jct",
                           "gavel-hierarchical",
                           "isolated",
                           "fifo-perf",
                           "allox",
                           "gandiva",
                           "gandiva-fair",
                           "themis",
                           "pollux",
                           "elas",
                           "pickyman",
                           "elasticflow"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(Policies, SayWhetherTheyAdmitAsTheyWereChosen) {
  const auto admits = [](const char* text) {
    return parse_policies(text).value().front().admits();
  };
  EXPECT_TRUE(admits("elasticflow"));
  EXPECT_TRUE(admits("elasticflow:admission=on"));
  EXPECT_FALSE(admits("elasticflow:admission=off"));
  EXPECT_TRUE(admits("edf-admission"));
  EXPECT_FALSE(admits("edf"));
  EXPECT_FALSE(admits("fifo"));
}

TEST(Policies, ThatNeedOneTypeOfGpusSaySo) {
  const auto check = [](const char* text, const char* cluster) {
    const auto fits = parse_policies(text).value().front().check(parse_cluster(cluster).value());
    return fits ? "" : fits.error().message;
  };
  EXPECT_EQ(check("afs-l", "2x4"), "");
  EXPECT_EQ(check("fifo", "1x4:a,1x4:b"), "");
  EXPECT_EQ(check("afs-l", "1x4:a,1x4:b"),
            "policy afs-l needs a cluster with one GPU type, and this one has 2");
}

}  // namespace
}  // namespace rubato::policy
