// e2e/python.py forks real workers.
#include "rubato/launch/warm_parent.h"

#include <gtest/gtest.h>

namespace rubato::launch {
namespace {

TEST(WarmParent, ForksPythonProgramsOnly) {
  EXPECT_TRUE(WarmParent::can_fork({"python3", "train.py"}));
  EXPECT_TRUE(WarmParent::can_fork({"/usr/bin/python3.11", "train.py", "--epochs", "3"}));
  EXPECT_FALSE(WarmParent::can_fork({"python3"}));
  EXPECT_FALSE(WarmParent::can_fork({"python3", "-m", "train"}));
  EXPECT_FALSE(WarmParent::can_fork({"./train", "data.py"}));
}

TEST(WarmParent, StartsAsUsualIfNobodyIsThere) {
  WarmParent parent;
  EXPECT_EQ(parent.pid(), 0);
  EXPECT_FALSE(parent.fork_worker({"python3", "train.py"}, {}, {}).has_value());
}

TEST(WarmParent, StartsAsUsualIfTheParentEnds) {
  WarmParent parent;
  parent.begin({"true", "train.py"}, own_environment(), false);
  EXPECT_GT(parent.pid(), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(parent.fork_worker({"true", "train.py"}, {}, {}).has_value());
  }
}

}  // namespace
}  // namespace rubato::launch
