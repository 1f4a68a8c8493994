#include "rubato/core/snapshot.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"

namespace rubato::core {
namespace {

TEST(JobTable, BehavesLikeAMapUnderRandomChanges) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    JobTable table;
    std::map<JobId, double> reference;
    std::size_t next = 0;
    for (int step = 0; step < 3000; ++step) {
      // Waves, so that the table is compacted at many sizes and sometimes emptied.
      const bool insert = random.uniform() < ((step / 500) % 2 == 0 ? 0.8 : 0.2);
      if (insert) {
        next += random.below(3) == 0 ? 1 + random.below(4) : 0;  // ids may have gaps
        JobView job = job_view(job_id(next++), rigid_spec(1));
        job.work = random.uniform();
        reference[job.id] = job.work;
        EXPECT_EQ(table.insert(std::move(job)).id, reference.rbegin()->first);
      } else if (!reference.empty()) {
        auto at = reference.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random.below(reference.size())));
        table.erase(at->first);
        reference.erase(at);
      }
      ASSERT_EQ(table.size(), reference.size());
      ASSERT_EQ(table.empty(), reference.empty());
      const JobId probe = job_id(random.below(next + 3));
      const JobView* found = table.find(probe);
      ASSERT_EQ(found != nullptr, reference.contains(probe));
      if (found != nullptr) {
        ASSERT_EQ(found->id, probe);
        ASSERT_EQ(found->work, reference[probe]);
      }
      if (step % 16 != 0) continue;
      auto expected = reference.begin();
      for (const JobView& job : table) {
        ASSERT_NE(expected, reference.end());
        ASSERT_EQ(job.id, expected->first) << "in the order of the ids";
        ASSERT_EQ(job.work, expected->second);
        ++expected;
      }
      ASSERT_EQ(expected, reference.end());
    }
  }
}

TEST(JobTable, ACopyIsAValueOfItsOwn) {
  JobTable table;
  table.insert(job_view(job_id(0), rigid_spec(1)));
  table.insert(job_view(job_id(4), rigid_spec(1)));
  JobTable copy = table;
  copy.find(job_id(4))->work = 9;
  copy.erase(job_id(0));
  EXPECT_EQ(table.size(), 2U);
  EXPECT_NE(table.find(job_id(0)), nullptr);
  EXPECT_EQ(table.find(job_id(4))->work, 0);
  EXPECT_EQ(copy.begin()->id, job_id(4));
}

TEST(JobTableDeathTest, IdsOnlyAscendAndEndOnce) {
  JobTable table;
  table.insert(job_view(job_id(3), rigid_spec(1)));
  EXPECT_DEATH(table.insert(job_view(job_id(3), rigid_spec(1))), "CHECK");
  EXPECT_DEATH(table.insert(job_view(job_id(1), rigid_spec(1))), "CHECK");
  EXPECT_DEATH(table.erase(job_id(1)), "CHECK");
}

}  // namespace
}  // namespace rubato::core
