/* librubato: elastic training for programs in any language. This header is C, and the library needs
 * neither torch nor Python. docs/elastic.md explains the terms.
 *
 * The program pulls. A job gives it leaves to compute, until it gives the end:
 *
 *     rubato_job* job = rubato_open(options, &model, &problem);
 *     for (;;) {
 *       rubato_task task;
 *       if (!rubato_next(job, 100, &task)) continue;     // nothing to do yet
 *       if (task.kind == RUBATO_END) break;
 *       compute the gradient of the samples task.indices;
 *       rubato_gradient(job, i, gradient, floats);       // once for each parameter, in any order
 *       rubato_leaf_done(job, tail, floats);
 *     }
 *     rubato_close(job);
 *
 * The functions of the model are called from inside rubato_next(), on the same thread. A job is for
 * one thread at a time. The network has its own thread inside the library, so other workers never
 * wait for this program's thread except for its part of a step.
 *
 * Texts are UTF-8 and end with a zero byte. Memory that the library passes belongs to the library.
 * Functions that can fail return 0, or -1 with the reason in rubato_problem().
 */
#pragma once

#include <stddef.h> /* NOLINT: this header is C */
#include <stdint.h> /* NOLINT */

#ifdef __cplusplus
extern "C" {
#endif

#define RUBATO_API __attribute__((visibility("default")))

/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming): this header is C */
typedef struct rubato_job rubato_job;
typedef struct rubato_chunk rubato_chunk;

/* Where a leaf is in the sequence of all leaves. */
typedef struct rubato_place {
  int64_t step; /* from 1 on */
  int64_t epoch;
  int64_t cursor;  /* of the epoch's samples: where the step begins */
  int64_t samples; /* of the step, over all workers */
  int32_t leaf;
  int32_t count; /* samples of the leaf */
} rubato_place;

enum { RUBATO_LEAF = 1, RUBATO_END = 2, RUBATO_WARM_UP = 3 };

typedef struct rubato_task {
  int32_t kind;
  /* RUBATO_LEAF, RUBATO_WARM_UP */
  int32_t last; /* this worker has no other leaf in the step */
  rubato_place place;
  double weight; /* the leaf's share of the step's samples */
  uint64_t seed; /* for the random numbers of the leaf */
  const int64_t* indices;
  /* RUBATO_END: 0 = the model is trained. Otherwise leave the process with this code: 2 = this
   * worker does not fit the job, 3 = it is not needed any more, 4 = the job has failed. */
  int32_t code;
  const char* why;
} rubato_task;

typedef struct rubato_step {
  int64_t step;
  int64_t epoch;
  int64_t samples;
  double learning_rate_factor;
  int32_t workers;
  int32_t ends_epoch;
  const float* result; /* the reduced vector: read it, do not keep it */
  size_t floats;
  /* By chunk, 1 if this worker has it. NULL = it has all. The step must be applied to these only.
   */
  const uint8_t* held;
} rubato_step;

/* The workers that sum up their gradients by themselves. The name is new whenever they have
 * changed, or one of them had to begin again. */
typedef struct rubato_group {
  int32_t rank;
  int32_t size;
  const char* name;
} rubato_group;

/* What the library must know about a model. An int is 0, or -1 after rubato_set_problem(). */
typedef struct rubato_model {
  void* self; /* passed to each function */
  /* Describes one chunk of the state with rubato_chunk_head() and rubato_chunk_piece(). The memory
   * must not change until release() is called, also while leaves are computed. */
  int (*chunk)(void* self, int index, rubato_chunk* into);
  void (*release)(void* self);
  int (*load_chunk)(void* self, int index, const char* head, const void* body, size_t bytes);
  /* One optimizer step with the reduced gradient. */
  int (*apply)(void* self, const rubato_step* step);
  /* The members have changed. Called between two steps. */
  void (*members)(void* self, int rank, int size);
  /* Only with the option "group", otherwise NULL. Replaces these sums by the sums over the group.
   * It may block, but must look at rubato_leaf_stale() now and then. Returns 0, or 1 if the group
   * is broken (the members will change), or -1. */
  int (*reduce)(void* self, const rubato_group* group, float* sums, size_t floats);
  /* The step is given up, and its group as well: others may wait in it for this worker. May be
   * NULL.
   */
  void (*interrupted)(void* self);
} rubato_model;
/* NOLINTEND(modernize-use-using,readability-identifier-naming) */

/* `options` is a JSON object. Only these are required:
 *   "samples"     size of the data set
 *   "parameters"  the number of floats of each trained parameter, in a fixed order
 *   "tail"        floats after the gradients, which are summed like them; the first is the weighted
 * loss "chunks"      the number of chunks of the state "schema"      what must be equal in all
 * workers (elastic/schema.h) "epochs" or "steps" Others have the names and defaults of
 * elastic/options.h: "seed", "batch", "shuffle", "drop_last", "virtual_workers", "adaptive",
 * "largest_batch", "largest_per_worker", "learning_rate_rule" ("adascale", "adascale_adam",
 * "linear", "sqrt"), "measure_noise", "checkpoint", "checkpoint_steps", "checkpoint_seconds",
 * "digest_steps", "bucket_bytes", "group", "may_overflow", "build". The batch variables of a job
 * file override them.
 *
 * With "warm_up" (false by default), a worker that joins first gets a leaf or two of the kind
 * RUBATO_WARM_UP: it computes them like others, before anybody waits for it. What it gives is
 * not used, and it may give nothing.
 *
 * NULL if it failed. `problem` then points to the reason until the next call of this function in
 * this thread. */
RUBATO_API rubato_job* rubato_open(const char* options, const rubato_model* model,
                                   const char** problem);
/* Sends everything that is waiting to be sent, and frees the job. */
RUBATO_API void rubato_close(rubato_job* job);

/* 1 and a task, or 0 if there was none within this time. */
RUBATO_API int rubato_next(rubato_job* job, int milliseconds, rubato_task* task);
/* The gradient of one parameter, not weighted. Copied. A parameter that is left out counts as zero.
 */
RUBATO_API int rubato_gradient(rubato_job* job, int parameter, const float* gradient,
                               size_t floats);
/* The leaf is complete. `tail` must be weighted. */
RUBATO_API int rubato_leaf_done(rubato_job* job, const float* tail, size_t floats);
/* 1: somebody has died, and the result of this leaf will not be used. */
RUBATO_API int rubato_leaf_stale(const rubato_job* job);

/* To prefetch: the leaf of this worker after `place` if the members and the batch do not change.
 * Its samples are `indices`, if that is not NULL; there must be room for `place->samples`. */
RUBATO_API void rubato_leaf_after(const rubato_job* job, rubato_place* place, int64_t* indices);

/* The program has failed, and would fail on any other worker. The whole job ends; go on with
 * rubato_next(). */
RUBATO_API void rubato_fail(rubato_job* job, const char* why);
/* Writes a checkpoint at the next step boundary. */
RUBATO_API void rubato_commit(rubato_job* job);
/* Ends the job at the next step boundary as if this were its planned end. All workers must call it
 * in one step. */
RUBATO_API void rubato_finish(rubato_job* job);
/* 1: this worker has been told to leave, or the whole job to stop. */
RUBATO_API int rubato_leaving(const rubato_job* job);
/* A line for the log of the job. */
RUBATO_API void rubato_notice(rubato_job* job, const char* kind, const char* text);

/* A board on which workers pin texts for all others, for example the addresses of a group. */
RUBATO_API void rubato_pin(rubato_job* job, const char* key, const char* text);
/* NULL if nobody has pinned it yet. Valid until the next call. */
RUBATO_API const char* rubato_pinned(rubato_job* job, const char* key);

/* For the functions of the model. */
RUBATO_API void rubato_chunk_head(rubato_chunk* chunk, const char* text);
RUBATO_API void rubato_chunk_piece(rubato_chunk* chunk, const void* memory, size_t bytes);
/* In apply(): adds the fields of a JSON object to the report on the step. */
RUBATO_API int rubato_report(rubato_job* job, const char* fields);
RUBATO_API void rubato_set_problem(rubato_job* job, const char* why);
RUBATO_API const char* rubato_problem(const rubato_job* job);

/* Where parameter i begins in the reduced vector. `i` = the number of parameters: where the tail
 * begins. */
RUBATO_API size_t rubato_offset(const rubato_job* job, int parameter);
/* The squared norm, added in an order that depends only on the number of floats. Use it to clip: a
 * norm that is summed by worker would have other bits for another number of workers. */
RUBATO_API double rubato_squared_norm(const float* values, size_t floats);
/* This worker's number. The first worker of a job is 1. */
RUBATO_API int64_t rubato_worker(const rubato_job* job);

#ifdef __cplusplus
}
#endif
