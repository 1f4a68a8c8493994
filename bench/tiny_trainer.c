/* The smallest trainer on librubato.so: a line through points, in C. It needs neither torch nor Python, so 64 of them
 * fit on a small machine (bench/many_workers.py).
 *
 *   rubato run --workers 4 -- tiny_trainer STEPS LEAVES [DIRECTORY]
 *
 * Until DIRECTORY/fast exists, each leaf takes some milliseconds, so that there is time to do something to the job.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rubato/c/rubato.h"

enum { FLOATS = 4096, SAMPLES = 4096, PACE_MICROSECONDS = 5000 };

static float weights[FLOATS];
static rubato_job* job;

static int describe(void* self, int index, rubato_chunk* into) {
  (void)self;
  (void)index;
  rubato_chunk_head(into, "weights");
  rubato_chunk_piece(into, weights, sizeof(weights));
  return 0;
}

static void release(void* self) { (void)self; }

static int load(void* self, int index, const char* head, const void* body, size_t bytes) {
  (void)self;
  (void)index;
  (void)head;
  if (bytes != sizeof(weights)) {
    rubato_set_problem(job, "the state has another size");
    return -1;
  }
  memcpy(weights, body, bytes);
  return 0;
}

static int apply(void* self, const rubato_step* step) {
  (void)self;
  const float* gradient = step->result + rubato_offset(job, 0);
  for (int i = 0; i < FLOATS; ++i) weights[i] -= 0.01F * gradient[i];
  return 0;
}

static void members(void* self, int rank, int size) {
  (void)self;
  (void)rank;
  (void)size;
}

/* The gradient of (w - x)^2 / 2, where x depends on the sample and the place. */
static float compute(const rubato_task* task, float* gradient) {
  float loss = 0;
  memset(gradient, 0, sizeof(weights));
  for (int s = 0; s < task->place.count; ++s) {
    for (int i = 0; i < FLOATS; ++i) {
      const float away = weights[i] - (float)((task->indices[s] * 31 + i * 17) % 101) / 50.0F;
      gradient[i] += away / (float)task->place.count;
      loss += away * away / 2;
    }
  }
  return loss * (float)task->weight / (float)task->place.count / FLOATS;
}

int main(int count, char** words) {
  if (count < 3) {
    fprintf(stderr, "usage: tiny_trainer STEPS LEAVES [DIRECTORY]\n");
    return 2;
  }
  char fast[4096] = "";
  if (count > 3) snprintf(fast, sizeof(fast), "%s/fast", words[3]);
  char options[512];
  snprintf(options, sizeof(options),
           "{\"samples\": %d, \"batch\": %d, \"steps\": %d, \"virtual_workers\": %d, \"parameters\": [%d], \"tail\": 1, "
           "\"chunks\": 1, \"schema\": {\"optimizer\": \"plain\", \"bucket_floats\": %d, \"buffers\": [], \"parameters\": "
           "[{\"name\": \"w\", \"shape\": [%d], \"dtype\": \"float32\", \"trained\": true}]}}",
           SAMPLES, atoi(words[2]), atoi(words[1]), atoi(words[2]), FLOATS, FLOATS, FLOATS);
  const rubato_model model = {.chunk = describe, .release = release, .load_chunk = load, .apply = apply, .members = members};
  const char* problem = NULL;
  job = rubato_open(options, &model, &problem);
  if (job == NULL) {
    fprintf(stderr, "tiny_trainer: %s\n", problem);
    return 2;
  }
  static float gradient[FLOATS];
  for (;;) {
    rubato_task task;
    if (!rubato_next(job, 100, &task)) continue;
    if (task.kind == RUBATO_END) {
      rubato_close(job);
      return task.code;
    }
    const float loss = compute(&task, gradient);
    if (*fast && access(fast, F_OK) != 0) usleep(PACE_MICROSECONDS);
    if (rubato_gradient(job, 0, gradient, FLOATS) != 0 || rubato_leaf_done(job, &loss, 1) != 0) {
      rubato_fail(job, rubato_problem(job));
    }
  }
}
