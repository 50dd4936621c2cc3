// The client library's interface: one clone of a training job, for programs that compute gradients
// of their own. It is plain C, so that it can be called from any language and does not change with
// a compiler; python/pushpull/_library.py binds it.
//
// A clone registers with the parameter server, and sends heartbeats, pulls weights, pushes
// gradients and repeats failed calls on threads of its own. The program asks for the next
// batch (pushpull_clone_next), computes its gradient at the weights given, says while it
// does so which part is final (pushpull_clone_advance), and ends the batch
// (pushpull_clone_finish).
//
// Functions that can fail return PUSHPULL_OK or one of the other codes, which below 100 are those
// of absl::StatusCode, and pushpull_clone_error says what failed. Thread rule: one thread makes all
// calls for a clone, except that pushpull_clone_advance, _stop and _progress may be called by any
// thread. A process may have several clones.
//
// After a fork, only the parent may use its clones. In the child, functions return
// FAILED_PRECONDITION or do nothing, pushpull_clone_free leaves the memory, and a new clone cannot
// connect.
#ifndef PUSHPULL_WORKER_CLIENT_PUSHPULL_CLIENT_H_
#define PUSHPULL_WORKER_CLIENT_PUSHPULL_CLIENT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PUSHPULL_CLIENT_API __attribute__((visibility("default")))

// Raised when a function or a structure changes incompatibly.
#define PUSHPULL_CLIENT_VERSION 3

enum {
  PUSHPULL_OK = 0,
  PUSHPULL_CANCELLED = 1,            // stopped by pushpull_clone_stop, or a failure elsewhere
                                     // stopped the job, which the message names
  PUSHPULL_INVALID_ARGUMENT = 3,     // names the argument
  PUSHPULL_DEADLINE_EXCEEDED = 4,    // the server was silent for the peer deadline; from
                                     // pushpull_clone_next also: no batch within `milliseconds`
  PUSHPULL_PERMISSION_DENIED = 7,    // an administrator evicted the clone
  PUSHPULL_FAILED_PRECONDITION = 9,  // the server has other variables, the call came too early, or
                                     // the clone has no access to a file or to the server
  PUSHPULL_UNAVAILABLE = 14,         // an error that may pass, such as a disk that is full
  PUSHPULL_JOB_CHANGED = 100,        // the server came back with other settings than those that the
                                     // clone connected to; a new clone takes them
  // Other codes of absl::StatusCode are possible.
};

typedef struct PushpullClone PushpullClone;

// Strings are copied. A null string is the empty string.
typedef struct {
  const char* ps;         // addresses of all ps tasks, or of task 0: "host:2222" or "unix:/path"
  uint32_t worker_id;     // number of the clone among all clones of the job, from 0
  uint32_t num_replicas;  // number of clones of the job; it counts until psctl scale sets it
  // Identify the clone across restarts of its process (RegisterRequest in
  // protos/parameter_server.proto). session 0: a new clone.
  uint64_t session;
  uint64_t process_number;
  const char* peer_name;         // shown in messages; empty: host, process and clone
  double peer_deadline_seconds;  // silence after which a server is given up; 0: 300
  int32_t shared_memory;         // 1: use it with ps tasks on this machine
  // TLS: files in PEM format. All empty: plaintext.
  const char* tls_ca;
  const char* tls_cert;
  const char* tls_key;
  int32_t insecure;  // 1: allows plaintext to other machines, which everybody on the way can read
                     // and change
  // How gradients are sent and how weights arrive: one of the names that
  // pushpull_gradient_precisions and pushpull_weight_precisions return. Empty: "fp32".
  const char* gradient_precision;
  const char* weight_precision;
} PushpullCloneOptions;

// Never fails; pushpull_clone_connect reports what is wrong with the options.
PUSHPULL_CLIENT_API PushpullClone* pushpull_clone_new(const PushpullCloneOptions* options);
// Ends the threads; blocks until they have ended, a few seconds at most if the server does not
// answer. A clone that has not trained to the end leaves its replica, which another clone or a new
// process takes over at once, or if the server did not hear of it, when the clone's lease has ended
// (ps_server --lease). A call that another thread is in returns CANCELLED first.
PUSHPULL_CLIENT_API void pushpull_clone_free(PushpullClone* clone);
// Says what the last failed function found, in whole sentences. Valid until the next call.
PUSHPULL_CLIENT_API const char* pushpull_clone_error(const PushpullClone* clone);

// Waits for the server and fetches the job. Blocks until then, at most for the peer deadline.
// CANCELLED: pushpull_clone_stop was called. RESOURCE_EXHAUSTED (8): the process can open too few
// more files (ulimit -n).
PUSHPULL_CLIENT_API int pushpull_clone_connect(PushpullClone* clone);

typedef struct {
  int32_t sync;
  int32_t tasks;
  uint64_t seed;
  uint64_t batch_size;          // train_config.batch_size
  uint64_t num_steps;           // 0: the job has no last step
  uint64_t version;             // the number of steps applied so far
  int32_t awaits_variables;     // 1: the next clone to start declares them
  const char* external_name;    // model.external.name; null: the server knows the model
  const char* pipeline_config;  // in protobuf's text format
} PushpullJob;
// The job as it was when pushpull_clone_connect returned; zeros before that. The strings are valid
// as long as the clone.
PUSHPULL_CLIENT_API void pushpull_clone_job(const PushpullClone* clone, PushpullJob* job);

typedef struct {
  const char* name;  // UTF-8
  const int64_t* shape;
  int32_t rank;
  int32_t moving_statistic;  // 1: has no gradient; the clone pushes a statistic of the batch
  // How the server trains it: VariableEntry in protos/parameter_server.proto.
  float l2_weight;
  float learning_rate_multiplier;  // 1: no change
  int32_t frozen;
  float moving_average_decay;
} PushpullVariable;

// Says what the program computes the gradients with, for `psctl status` and the manifests of
// checkpoints: "the CPU (AVX2) in fp32, PyTorch 2.15.0". Call it before pushpull_clone_start.
// rounding: clones with different texts here may compute different last bits from the same input,
// of which a synchronous job warns once; null or empty: not known.
// FAILED_PRECONDITION: the clone was already started.
PUSHPULL_CLIENT_API int pushpull_clone_computes_on(PushpullClone* clone, const char* device,
                                                   const char* rounding);

// Registers the clone for a model with these variables and begins to pull and to send heartbeats.
// If the job awaits its variables, declares them with `values`: the elements of each variable in C
// order. Otherwise compares them with the job's. num_samples: size of the training data, which
// train_input_reader.num_epochs counts. Blocks until the clone is registered.
// INVALID_ARGUMENT: a variable cannot be declared.
// FAILED_PRECONDITION: the job has other variables; the message names the first that differs.
PUSHPULL_CLIENT_API int pushpull_clone_start(PushpullClone* clone,
                                             const PushpullVariable* variables, int64_t count,
                                             const float* const* values, uint64_t num_samples);
// Length of the vectors in PushpullBatch, and the position of variable `index` in them. -1 before
// pushpull_clone_start.
PUSHPULL_CLIENT_API int64_t pushpull_clone_total_elements(const PushpullClone* clone);
PUSHPULL_CLIENT_API int64_t pushpull_clone_offset(const PushpullClone* clone, int64_t index);

typedef struct {
  // 1: training has ended, with an error if pushpull_clone_next returned one. Without an error,
  // `weights` are the last that the clone has pulled, of step `version`, or null.
  int32_t over;
  uint32_t replica;
  // Number of the batch: of the step, counted from 0, in a synchronous job; of the replica's batch
  // in an asynchronous one. With the replica it selects the data. With train_config.local_steps
  // the batches of a round follow one another, with the same version; the weights are the clone's
  // own.
  uint64_t position;
  uint64_t version;  // of the weights
  // In a synchronous job: the replica's part of the step's global batch, samples [first_sample,
  // first_sample + samples) of batch_size. The server divides the batch and may change the division
  // between two steps. In an asynchronous job 0 and 0: the replica has a whole batch.
  uint64_t first_sample;
  uint64_t samples;
  // total_elements; valid until the batch is finished or given up, and with `over` as long as the
  // clone
  const float* weights;
  // total_elements, to be filled until pushpull_clone_finish: the gradient of the loss, a mean over
  // the samples and without the L2 term, and statistics of the batch for moving statistics. The
  // elements between variables must be zero, as they are at first.
  float* gradient;
} PushpullBatch;

// Blocks until there is a batch to compute, training has ended or failed, or `milliseconds` have
// passed (DEADLINE_EXCEEDED with batch->over = 0; call again). DEADLINE_EXCEEDED with over = 1
// means that a server was given up. Negative milliseconds set no limit. A batch that was returned
// before must have been finished or given up.
PUSHPULL_CLIENT_API int pushpull_clone_next(PushpullClone* clone, int32_t milliseconds,
                                            PushpullBatch* batch);
// Says that elements [first_final, total_elements) of the gradient are final. They are sent while
// the program computes the others. Values must fall from call to call. Never blocks.
PUSHPULL_CLIENT_API void pushpull_clone_advance(PushpullClone* clone, int64_t first_final);

typedef struct {
  const char* name;  // a TensorBoard tag, in UTF-8
  double value;      // mean over the samples
} PushpullMetric;

// Ends the batch: the whole gradient is final. samples: number of samples that the gradient is the
// mean of, at least 1; the server weights it by them. A loss that is not finite makes the
// contribution void. The loss becomes the metric "Loss/total_loss", unless the metrics have it; the
// server also shows a metric "accuracy" in its progress.
// Does not wait for the server; pushpull_clone_next reports errors.
PUSHPULL_CLIENT_API int pushpull_clone_finish(PushpullClone* clone, uint64_t samples, double loss,
                                              const PushpullMetric* metrics, int64_t num_metrics);
// Gives the batch up, because the program cannot compute it. The clone ends and tells the server
// that it leaves: pushpull_clone_next returns ABORTED with this message.
PUSHPULL_CLIENT_API int pushpull_clone_give_up(PushpullClone* clone, const char* message);
// Makes the functions above return CANCELLED, within a second or two if they wait for a server.
// Never blocks; may be called by a signal's handler in an interpreter, but not by a C signal
// handler.
PUSHPULL_CLIENT_API void pushpull_clone_stop(PushpullClone* clone);

typedef struct {
  uint64_t step;  // 0: no contribution yet
  uint64_t num_steps;
  double loss;
  double learning_rate;
  double samples_per_second;
  uint64_t samples;    // contributed by this clone since it was made
  uint64_t staleness;  // in versions
} PushpullProgress;
// Fills in the figures, and writes what the clone waits for to `waiting_for`, or the empty string.
PUSHPULL_CLIENT_API void pushpull_clone_progress(PushpullClone* clone, PushpullProgress* progress,
                                                 char* waiting_for, int64_t waiting_for_size);

typedef struct {
  int32_t sync;
  int32_t shuffle;  // 1: another order in each epoch
  uint64_t seed;
  int64_t num_examples;
  int64_t batch_size;
  int32_t num_replicas;
  // The part of the batch in a synchronous job, as PushpullBatch names it. samples 0: equal parts.
  uint64_t first_sample;
  uint64_t samples;
} PushpullSampling;
// Writes the examples of a replica's batch to `indices`, at most `capacity`, and returns how many
// there are. They depend on the arguments only and are those that the `worker` program chooses.
// Returns -1 if an argument is out of its range.
PUSHPULL_CLIENT_API int64_t pushpull_sample_batch(const PushpullSampling* sampling,
                                                  uint64_t position, uint32_t replica,
                                                  int64_t* indices, int64_t capacity);
// The values of gradient_precision and weight_precision, separated by ", ". bf16 halves the bytes;
// int8 takes about a quarter of them and adds what it loses to the next gradient.
PUSHPULL_CLIENT_API const char* pushpull_gradient_precisions(void);
PUSHPULL_CLIENT_API const char* pushpull_weight_precisions(void);
PUSHPULL_CLIENT_API int32_t pushpull_client_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // PUSHPULL_WORKER_CLIENT_PUSHPULL_CLIENT_H_
