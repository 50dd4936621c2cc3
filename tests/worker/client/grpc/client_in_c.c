/* Uses the shared library as a program in C does: the header is C, all functions are exported, and without a server
   they fail with a message. */
#include <stdio.h>
#include <string.h>

#include "worker/client/pushpull_client.h"

static int failures = 0;

static void expect(int fulfilled, const char* what) {
  if (fulfilled) return;
  fprintf(stderr, "FAILED: %s\n", what);
  ++failures;
}

int main(void) {
  PushpullCloneOptions options;
  memset(&options, 0, sizeof(options));
  options.ps = "unix:/nonexistent/socket";
  options.num_replicas = 1;
  options.peer_deadline_seconds = 0.2;
  expect(pushpull_client_version() == PUSHPULL_CLIENT_VERSION, "library and header are of one version");

  PushpullClone* clone = pushpull_clone_new(&options);
  PushpullBatch batch;
  expect(pushpull_clone_next(clone, 0, &batch) == PUSHPULL_FAILED_PRECONDITION, "next before start is refused");
  expect(strstr(pushpull_clone_error(clone), "pushpull_clone_start") != NULL, "the message says what to call");
  expect(pushpull_clone_connect(clone) == PUSHPULL_DEADLINE_EXCEEDED, "there is no server");
  expect(strstr(pushpull_clone_error(clone), "unix:/nonexistent/socket") != NULL, "the message names the server");

  float value = 0.0f;
  const float* values[] = {&value};
  const int64_t shape[] = {1};
  PushpullVariable variable;
  memset(&variable, 0, sizeof(variable));
  variable.name = "w";
  variable.shape = shape;
  variable.rank = 1;
  variable.learning_rate_multiplier = 1.0f;
  expect(pushpull_clone_start(clone, &variable, 1, values, 10) == PUSHPULL_FAILED_PRECONDITION,
         "start before connect is refused");
  PushpullJob job;
  pushpull_clone_job(clone, &job);
  expect(job.batch_size == 0 && job.pipeline_config == NULL, "there is no job");
  expect(pushpull_clone_total_elements(clone) == -1 && pushpull_clone_offset(clone, 0) == -1, "there is no layout");
  pushpull_clone_advance(clone, 0);
  expect(pushpull_clone_finish(clone, 1, 0.0, NULL, 0) == PUSHPULL_FAILED_PRECONDITION, "there is no batch");
  expect(pushpull_clone_give_up(clone, "no") == PUSHPULL_FAILED_PRECONDITION, "there is no batch");
  PushpullProgress progress;
  char waiting_for[100];
  pushpull_clone_progress(clone, &progress, waiting_for, sizeof(waiting_for));
  expect(strstr(waiting_for, "unix:/nonexistent/socket") != NULL, "progress says for whom the clone waits");
  pushpull_clone_stop(clone);
  expect(pushpull_clone_connect(clone) == PUSHPULL_CANCELLED, "a stopped clone does not connect");
  pushpull_clone_free(clone);

  const PushpullSampling sampling = {1, 1, 0, 100, 10, 1};
  int64_t indices[10];
  expect(pushpull_sample_batch(&sampling, 0, 0, indices, 10) == 10, "a batch is sampled");

  if (failures == 0) puts("ok");
  return failures != 0;
}
