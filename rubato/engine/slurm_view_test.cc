#include "rubato/engine/slurm_view.h"

#include <chrono>
#include <gtest/gtest.h>

namespace rubato::engine {
namespace {

using State = ManagedShare::State;

class SlurmViewTest : public testing::Test {
 protected:
  // A second later.
  Listing look(std::vector<SlurmJob> jobs) {
    now_ += std::chrono::seconds(1);
    return view_.update(++number_, {node_}, jobs, owners_, now_);
  }
  static SlurmJob job(std::int64_t id, const char* state, const char* name = "r-a") {
    const bool placed = std::string(state) != "PENDING";
    return {id, state, "ann", "n1", placed, 1, "", "None", name};
  }
  static State state_in(const Listing& listing) {
    EXPECT_EQ(listing.shares.size(), 1U);
    return listing.shares.empty() ? State::gone : listing.shares[0].state;
  }

  // One a second, until a node that answers has cleaned up.
  static constexpr int kLooks = static_cast<int>(kSlurmCleansUp / std::chrono::seconds(1));
  SlurmNode node_{"n1", "n1", 4, 0, "", NodeState::up, "", true, 32, 64000, {"all"}, {}};
  SlurmView view_;
  std::map<ShareName, std::string> owners_{{"r-a", "ann"}};
  Time now_{};
  std::int64_t number_ = 0;
};

TEST_F(SlurmViewTest, FollowsAShare) {
  EXPECT_EQ(state_in(look({job(1, "PENDING")})), State::waiting);
  EXPECT_EQ(state_in(look({job(1, "RUNNING")})), State::running);
  EXPECT_EQ(state_in(look({job(1, "COMPLETING")})), State::ending);
  EXPECT_EQ(state_in(look({job(1, "COMPLETED")})), State::gone);
  EXPECT_TRUE(look({}).shares.empty());
}

TEST_F(SlurmViewTest, ForgetsAShareThatNeverRan) {
  (void)look({job(1, "PENDING")});
  EXPECT_TRUE(look({}).shares.empty());
}

// Slurm gives a job up whose node is down. Its processes may live.
TEST_F(SlurmViewTest, ALostShareComesBackWithItsNode) {
  (void)look({job(1, "RUNNING")});
  node_.answering = false;
  for (const char* state : {"CANCELLED", "NODE_FAIL"}) {
    EXPECT_EQ(state_in(look({job(1, state)})), State::lost) << state;
  }
  EXPECT_EQ(state_in(look({})), State::lost) << "Slurm forgets old jobs";
  node_.answering = true;
  for (int i = 0; i < kLooks; ++i) EXPECT_EQ(state_in(look({})), State::lost);
  EXPECT_TRUE(look({}).shares.empty());
}

TEST_F(SlurmViewTest, AFailedNodeMustAnswerForAWhile) {
  (void)look({job(1, "RUNNING")});
  for (int i = 0; i < kLooks; ++i) EXPECT_EQ(state_in(look({job(1, "NODE_FAIL")})), State::lost);
  EXPECT_EQ(state_in(look({job(1, "NODE_FAIL")})), State::gone);
}

// A controller that was killed may have forgotten what runs.
TEST_F(SlurmViewTest, ARunningJobThatIsNoLongerListedIsLost) {
  (void)look({job(1, "RUNNING")});
  for (int i = 0; i < kLooks; ++i) EXPECT_EQ(state_in(look({})), State::lost);
  EXPECT_TRUE(look({}).shares.empty());
}

TEST_F(SlurmViewTest, GoneStaysGoneWhenTheNodeFailsLater) {
  (void)look({job(1, "RUNNING")});
  EXPECT_EQ(state_in(look({job(1, "COMPLETED")})), State::gone);
  node_.answering = false;
  EXPECT_EQ(state_in(look({job(1, "COMPLETED")})), State::gone);
}

TEST_F(SlurmViewTest, TheLowestNumberIsTheShare) {
  const auto listing = look({job(7, "RUNNING"), job(3, "PENDING")});
  EXPECT_EQ(state_in(listing), State::waiting);
  EXPECT_EQ(listing.shares[0].native, "3");
  EXPECT_EQ(view_.doubles(), (std::vector<std::int64_t>{7}));
  // While a double lives, its GPU is not free.
  EXPECT_EQ(state_in(look({job(7, "COMPLETING"), job(3, "CANCELLED")})), State::ending);
  EXPECT_EQ(state_in(look({job(7, "CANCELLED"), job(3, "CANCELLED")})), State::gone);
  EXPECT_TRUE(view_.doubles().empty());
}

TEST_F(SlurmViewTest, AStrangerWithOurNameIsNotOurs) {
  SlurmJob strange = job(2, "RUNNING");
  strange.user = "eve";
  EXPECT_TRUE(look({strange}).shares.empty());
  EXPECT_EQ(look({strange, job(5, "RUNNING")}).shares[0].native, "5");
}

TEST_F(SlurmViewTest, CountsGpusOfOthers) {
  node_.gpus_used = 3;
  EXPECT_EQ(look({job(1, "RUNNING")}).nodes[0].others, 2);
  // The list of nodes is older than that of the jobs: it counts a job that ended in between.
  EXPECT_EQ(look({job(1, "COMPLETED")}).nodes[0].others, 2);
  EXPECT_EQ(look({job(1, "COMPLETED")}).nodes[0].others, 3);
  // One that has not started yet when the nodes were listed.
  node_.gpus_used = 0;
  EXPECT_EQ(look({job(2, "RUNNING", "r-b")}).nodes[0].others, 0);
}

}  // namespace
}  // namespace rubato::engine
