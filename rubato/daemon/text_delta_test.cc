#include "rubato/daemon/text_delta.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <string>
#include <vector>

namespace rubato {
namespace {

std::string queue_of(const std::vector<int>& jobs, int stamp) {
  Json waiting = Json::array();
  for (const int job : jobs) waiting.push_back(Json::array({job, 4, "a,]\"b", 0.5}));
  return canonical_json({{"stamp", stamp}, {"running", Json::array()}, {"waiting", waiting}})
      .value();
}

TEST(TextDelta, AGrowingQueueCostsWhatIsNew) {
  std::vector<int> jobs;
  for (int i = 0; i < 5000; ++i) jobs.push_back(i);
  const std::string before = queue_of(jobs, 1);
  jobs.erase(jobs.begin(), jobs.begin() + 3);
  jobs.erase(jobs.begin() + 1000);
  jobs.push_back(9999);
  const std::string after = queue_of(jobs, 2);
  const Json delta = delta_of(before, after);
  EXPECT_LT(delta.dump().size(), 300U);
  EXPECT_EQ(apply_delta(before, delta).value(), after);
}

TEST(TextDelta, NonsenseIsRefused) {
  for (const char* text :
       {"7", "[[0,99]]", "[[99,1]]", "[[-1,1]]", "[[0]]", "[null]", "[[0,18446744073709551615]]"})
    EXPECT_FALSE(apply_delta("[1,2]", Json::parse(text))) << text;
  EXPECT_EQ(apply_delta("[1,2]", Json::parse(R"(["x",[0,2]])")).value(), "x[1,");
}

RC_GTEST_PROP(TextDelta, GivesTheVeryBytes, ()) {
  const auto draw = [] {
    Json json = Json::object();
    const auto lists = *rc::gen::container<std::vector<std::vector<int>>>(
        rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4)));
    for (std::size_t i = 0; i < lists.size() && i < 4; ++i) {
      Json list = Json::array();
      for (const int n : lists[i])
        list.push_back(n == 0   ? Json("te\\\"[,")
                       : n == 1 ? Json::array({n, Json::object()})
                                : Json(n));
      json[std::to_string(i)] = list;
    }
    return canonical_json(json).value();
  };
  const std::string before = draw();
  const std::string after = draw();
  RC_ASSERT(apply_delta(before, delta_of(before, after)).value() == after);
  RC_ASSERT(apply_delta(before, delta_of(before, before)).value() == before);
}

}  // namespace
}  // namespace rubato
