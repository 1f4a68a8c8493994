#include "rubato/c/rubato.h"

#include <array>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace rubato::c {
namespace {

// One parameter w of two floats, with gradient w - target(sample), as a program in C would train
// it.
struct Program {
  std::array<float, 2> w{0, 0};
  rubato_job* job = nullptr;
  int applied = 0;
  int releases = 0;
  int reductions = 0;
  bool refuses = false;
};

Program& of(void* self) { return *static_cast<Program*>(self); }

rubato_model model_of(Program& program) {
  rubato_model model{};
  model.self = &program;
  model.chunk = [](void* self, int /*index*/, rubato_chunk* into) {
    rubato_chunk_head(into, "w");
    rubato_chunk_piece(into, of(self).w.data(), sizeof(of(self).w));
    return 0;
  };
  model.release = [](void* self) { ++of(self).releases; };
  model.load_chunk = [](void* self, int /*index*/, const char* head, const void* body,
                        size_t bytes) {
    EXPECT_STREQ(head, "w");
    EXPECT_EQ(bytes, sizeof(of(self).w));
    std::memcpy(of(self).w.data(), body, bytes);
    return 0;
  };
  model.apply = [](void* self, const rubato_step* step) {
    Program& program = of(self);
    if (program.refuses) {
      rubato_set_problem(program.job, "this program does not want to");
      return -1;
    }
    EXPECT_EQ(step->held, nullptr);
    const float* gradient = step->result + rubato_offset(program.job, 0);
    for (std::size_t i = 0; i < 2; ++i) program.w[i] -= 0.1F * gradient[i];
    EXPECT_EQ(rubato_report(program.job, R"({"extra": 1})"), 0);
    EXPECT_EQ(rubato_report(program.job, "[]"), -1);
    ++program.applied;
    return 0;
  };
  model.members = [](void* /*self*/, int rank, int size) {
    EXPECT_EQ(rank, 0);
    EXPECT_EQ(size, 1);
  };
  return model;
}

constexpr const char* kOptions = R"({"samples": 10, "batch": 4, "epochs": 3, "virtual_workers": 2,
  "parameters": [2], "tail": 1, "chunks": 1,
  "schema": {"optimizer": "plain", "bucket_floats": 1, "buffers": [],
             "parameters": [{"name": "w", "shape": [2], "dtype": "float32", "trained": true}]}})";

// Returns the exit code.
int train(Program& program, std::vector<int>& seen, const char* options = kOptions) {
  const char* problem = nullptr;
  rubato_model model = model_of(program);
  model.reduce = [](void* self, const rubato_group* group, float* sums, size_t floats) {
    EXPECT_EQ(group->size, 1);
    EXPECT_STREQ(group->name, "1.0.0");
    EXPECT_EQ(floats, 3U);
    EXPECT_TRUE(std::isfinite(sums[0]));
    rubato_pin(of(self).job, "reductions", std::to_string(++of(self).reductions).c_str());
    EXPECT_EQ(rubato_leaf_stale(of(self).job), 0);
    return 0;
  };
  program.job = rubato_open(options, &model, &problem);
  EXPECT_NE(program.job, nullptr) << problem;
  rubato_place expected{};
  for (;;) {
    rubato_task task;
    if (rubato_next(program.job, 100, &task) == 0) continue;
    if (task.kind == RUBATO_END) {
      EXPECT_EQ(rubato_pinned(program.job, "nothing"), nullptr);
      if (program.reductions > 0) {
        EXPECT_EQ(rubato_pinned(program.job, "reductions"), std::to_string(program.reductions));
      }
      rubato_close(program.job);
      return task.code;
    }
    EXPECT_TRUE(expected.step == 0 ||
                (expected.step == task.place.step && expected.leaf == task.place.leaf &&
                 expected.count == task.place.count))
        << "the leaf that was foreseen";
    std::array<float, 2> gradient{};
    for (int i = 0; i < task.place.count; ++i) {
      ++seen[static_cast<std::size_t>(task.indices[i])];
      for (std::size_t k = 0; k < 2; ++k) {
        gradient[k] += (program.w[k] - 1) / static_cast<float>(task.place.count);
      }
    }
    EXPECT_EQ(rubato_gradient(program.job, 1, gradient.data(), 2), -1);
    EXPECT_EQ(rubato_gradient(program.job, 0, gradient.data(), 3), -1);
    EXPECT_EQ(rubato_gradient(program.job, 0, gradient.data(), 2), 0);
    EXPECT_EQ(rubato_gradient(program.job, 0, gradient.data(), 2), -1);
    EXPECT_NE(std::string(rubato_problem(program.job)).find("two gradients"), std::string::npos);
    const float loss = 0;
    EXPECT_EQ(rubato_leaf_done(program.job, &loss, 1), 0);
    EXPECT_EQ(rubato_leaf_done(program.job, &loss, 1), -1);
    expected = task.place;
    std::vector<std::int64_t> indices(16);
    rubato_leaf_after(program.job, &expected, indices.data());
  }
}

TEST(CInterface, AProgramTrainsAlone) {
  Program program;
  std::vector<int> seen(10);
  EXPECT_EQ(train(program, seen), 0);
  EXPECT_EQ(seen, std::vector<int>(10, 3)) << "each sample once an epoch";
  EXPECT_EQ(program.applied, 9);
  EXPECT_GT(program.releases, 0);
  EXPECT_NEAR(program.w[0], 1 - std::pow(0.9, 9), 1e-5);
}

TEST(CInterface, AProgramReducesInAGroup) {
  Program alone, grouped;
  std::vector<int> seen(10), seen_grouped(10);
  EXPECT_EQ(train(alone, seen), 0);
  const std::string options = R"({"group": true, )" + std::string(kOptions).substr(1);
  EXPECT_EQ(train(grouped, seen_grouped, options.c_str()), 0);
  EXPECT_EQ(alone.reductions, 0);
  EXPECT_EQ(grouped.reductions, 9) << "once a step";
  EXPECT_EQ(seen_grouped, seen);
  EXPECT_EQ(grouped.w, alone.w);
  const char* problem = nullptr;
  const rubato_model model = model_of(alone);
  EXPECT_EQ(rubato_open(options.c_str(), &model, &problem), nullptr);
  EXPECT_STREQ(problem, "with the option group, the model must have the function reduce");
}

TEST(CInterface, AModelThatFailsEndsTheJob) {
  Program program;
  program.refuses = true;
  std::vector<int> seen(10);
  EXPECT_EQ(train(program, seen), 4);
}

TEST(CInterface, BadOptionsAreRefusedWithASentence) {
  Program program;
  const rubato_model model = model_of(program);
  const auto problem_of = [&](std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    const char* problem = nullptr;
    EXPECT_EQ(rubato_open(text.c_str(), &model, &problem), nullptr);
    return std::string(problem);
  };
  const std::string good = kOptions;
  EXPECT_NE(problem_of(good, "{\"samples\"", "{{").find("the options of the job"),
            std::string::npos);
  EXPECT_EQ(problem_of(good, "\"samples\": 10", "\"samples\": 0"),
            "the data set is empty; there is nothing to train on");
  EXPECT_EQ(problem_of(good, "\"batch\": 4", "\"batch\": 0"), "batch is 0; use 1 or more");
  EXPECT_EQ(problem_of(good, "\"epochs\": 3", "\"epochs\": 0"),
            "the job has no end; give a number of steps or of epochs");
  EXPECT_EQ(problem_of(good, "\"tail\": 1", "\"tail\": 0"), "the tail must have at least the loss");
  EXPECT_EQ(problem_of(good, "\"chunks\": 1", "\"chunks\": 0"),
            "the state must have at least one chunk");
  EXPECT_EQ(problem_of(good, "\"batch\"", "\"learning_rate_rule\": \"odd\", \"batch\""),
            "learning_rate_rule must be adascale, adascale_adam, linear or sqrt");
  EXPECT_NE(problem_of(good, "\"samples\": 10", "\"samples\": \"ten\"").find("must be number"),
            std::string::npos);
  EXPECT_EQ(problem_of(good, "\"parameters\": [2]", "\"parameters\": [-2]"),
            "a parameter has too many floats");
}

}  // namespace
}  // namespace rubato::c
