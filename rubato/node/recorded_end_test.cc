#include "rubato/node/recorded_end.h"

#include <gtest/gtest.h>

namespace rubato::node {
namespace {

JobLaunch launch(unsigned generation, const std::string& token = "token") {
  JobLaunch launch;
  launch.generation = Generation(generation);
  launch.token = token;
  return launch;
}

RecordedEnd recorded(unsigned start, unsigned exit, JobEnd::How how) {
  return {Generation(start), "token", JobExit{Generation(exit), {how, 0, ""}, {}, 0, 0}, {}};
}

TEST(RecordedEnd, AnExitOfAnEarlierStartDoesNotCount) {
  const RecordedEnd failed = recorded(4, 4, JobEnd::How::failed);
  EXPECT_TRUE(exit_that_counts(failed, launch(4)));
  EXPECT_FALSE(exit_that_counts(failed, launch(5)));
  EXPECT_TRUE(must_not_begin(failed, Generation(4)));
  EXPECT_FALSE(must_not_begin(failed, Generation(5)));
}

TEST(RecordedEnd, ToFinishIsFinalForThisJobAlone) {
  const RecordedEnd finished = recorded(4, 4, JobEnd::How::finished);
  EXPECT_TRUE(exit_that_counts(finished, launch(9)));
  EXPECT_TRUE(had_finished(finished, "token"));
  EXPECT_FALSE(exit_that_counts(finished, launch(9, "another job with this number")));
  EXPECT_FALSE(had_finished(recorded(4, 4, JobEnd::How::stopped), "token"));
  EXPECT_FALSE(had_finished(recorded(0, 4, JobEnd::How::finished), "")) << "of nobody knows whom";
}

TEST(RecordedEnd, AFenceEndsStartsUpToItsOwn) {
  RecordedEnd fenced;
  fenced.fence = Generation(7);
  EXPECT_TRUE(must_not_begin(fenced, Generation(7)));
  EXPECT_FALSE(must_not_begin(fenced, Generation(8)));
  const auto exit = exit_that_counts(fenced, launch(7));
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->end.how, JobEnd::How::failed);
  EXPECT_FALSE(exit_that_counts(fenced, launch(8)));
}

TEST(RecordedEnd, AnExitIsNotWrittenOverThatOfALaterStart) {
  const JobExit late{Generation(5), {JobEnd::How::failed, 1, "its disk is full"}, {}, 0, 0};
  EXPECT_TRUE(may_record(recorded(2, 2, JobEnd::How::failed), late)) << "it could write no launch";
  EXPECT_TRUE(may_record(recorded(5, 2, JobEnd::How::failed), late));
  EXPECT_FALSE(may_record(recorded(6, 8, JobEnd::How::finished), late));
}

}  // namespace
}  // namespace rubato::node
