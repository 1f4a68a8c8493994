// A small application for tests, in round numbers.
#pragma once

#include <memory>
#include <optional>

#include "rubato/core/testing.h"
#include "rubato/sim/profiles.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

// Step times at 1 and 2 GPUs, 2 nodes and 4 nodes; two epochs at batches 10 and 40.
inline ApplicationTexts small_application_texts() {
  ApplicationTexts texts;
  texts.name = "small";
  texts.placements = {"placements.csv",
                      "placement,local_bsz,step_time,sync_time\n"
                      "1,10,0.2,0\n1,20,0.4,0\n"
                      "2,10,0.3,0.1\n2,20,0.5,0.1\n"
                      "11,10,0.4,0.2\n11,20,0.6,0.2\n"
                      "12,10,0.5,0.3\n12,20,0.7,0.3\n"};
  texts.scalability = {"scalability.csv",
                       "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
                       "4,4,10,1.0,0.8\n4,8,10,1.2,1.0\n"};
  texts.validation[10] = {"validation-10.csv", "progress,grad_sqr,grad_var\n100,1,1\n200,1,1\n"};
  texts.validation[40] = {"validation-40.csv", "progress,grad_sqr,grad_var\n90,1,3\n210,2,6\n"};
  return texts;
}

inline std::shared_ptr<const Application> small_application() {
  return Application::parse(small_application_texts()).value();
}

// A job that trains it: 200 steps at batch 10 in two epochs. Its batch may be tuned unless its
// owner chose one.
inline SimJob profiled_job(std::optional<int> owners_batch, double restart_s = 30) {
  SimJob job;
  job.application = small_application();
  auto spec = elastic_spec(1, 4);
  spec->batch = owners_batch.value_or(10);
  spec->adaptive_batch = !owners_batch;
  spec->restart_cost = from_seconds(restart_s);
  job.spec = spec;
  job.work = job.application->work();
  job.speed = std::make_shared<ApplicationSpeed>(job.application, spec->batch);
  return job;
}

}  // namespace rubato::sim
