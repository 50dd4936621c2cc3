// Tested by tests/ps_server/transport/server_limits_test.cc.
// Tested by tests/ps_server/transport/grpc_ps_test.cc.
// Tested by tests/ps_server/transport/shared_chunks_test.cc.
#include "ps_server/transport/grpc_ps_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/grpc/grpc_runtime.h"
#include "common/wire/security/caller_rule.h"
#include "common/wire/security/peer_secret.h"
#include "common/wire/security/transport_credentials.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/call_watch.h"
#include "ps_server/transport/connection_table.h"
#include "ps_server/transport/listen.h"
#include "ps_server/transport/ps_reactors.h"

namespace pushpull {
namespace {

template <typename Base>
using UnaryMethods =
    ps::ParameterServer::WithCallbackMethod_GetJob<ps::ParameterServer::WithCallbackMethod_Register<
        ps::ParameterServer::WithCallbackMethod_Heartbeat<
            ps::ParameterServer::WithCallbackMethod_Commit<
                ps::ParameterServer::WithCallbackMethod_GetStatus<Base>>>>>;
template <typename Base>
using OperatorMethods = ps::ParameterServer::WithCallbackMethod_Checkpoint<
    ps::ParameterServer::WithCallbackMethod_Drain<
        ps::ParameterServer::WithCallbackMethod_Evict<Base>>>;
template <typename Base>
using ShardMethods = ps::ParameterServer::WithCallbackMethod_GetShardState<
    ps::ParameterServer::WithCallbackMethod_Restore<
        ps::ParameterServer::WithCallbackMethod_MeasureNorm<
            ps::ParameterServer::WithCallbackMethod_Apply<
                ps::ParameterServer::WithCallbackMethod_Snapshot<
                    ps::ParameterServer::WithCallbackMethod_EndTask<Base>>>>>>;
template <typename Base>
using ChunkMethods =
    ps::ParameterServer::WithRawCallbackMethod_Push<ps::ParameterServer::WithRawCallbackMethod_Pull<
        ps::ParameterServer::WithCallbackMethod_OpenSharedMemory<Base>>>;

class Service final
    : public UnaryMethods<
          OperatorMethods<ShardMethods<ChunkMethods<ps::ParameterServer::Service>>>> {
 public:
  // certificates: whether callers have presented a certificate, which limits their worker_ids.
  // secret: without certificates, proves orders of the coordinator; null means that all orders are
  // rejected.
  Service(PsHandler* handler, bool certificates, std::shared_ptr<const PeerSecret> secret,
          const ConnectionTable* connections, CallWatch* watch)
      : handler_(handler),
        certificates_(certificates),
        secret_(std::move(secret)),
        connections_(connections),
        watch_(watch) {}

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* GetJob(Context* context, const ps::JobRequest* request, ps::JobReply* reply) override {
    return Answer(*context, &PsHandler::GetJob, *request, reply);
  }
  Unary* Register(Context* context, const ps::RegisterRequest* request,
                  ps::RegisterReply* reply) override {
    return Answer(*context, &PsHandler::Register, *request, reply);
  }
  Unary* Heartbeat(Context* context, const ps::HeartbeatRequest* request,
                   ps::HeartbeatReply* reply) override {
    return Answer(*context, &PsHandler::Heartbeat, *request, reply);
  }
  Unary* Commit(Context* context, const ps::CommitRequest* request,
                ps::CommitReply* reply) override {
    return Answer(*context, &PsHandler::Commit, *request, reply);
  }
  Unary* GetStatus(Context* context, const ps::StatusRequest* request,
                   ps::StatusReply* reply) override {
    return Answer(*context, &PsHandler::GetStatus, *request, reply);
  }
  Unary* Checkpoint(Context* context, const ps::CheckpointRequest* request,
                    ps::CheckpointReply* reply) override {
    return Answer(*context, &PsHandler::Checkpoint, *request, reply);
  }
  Unary* Drain(Context* context, const ps::DrainRequest* request, ps::DrainReply* reply) override {
    return Answer(*context, &PsHandler::Drain, *request, reply);
  }
  Unary* Evict(Context* context, const ps::EvictRequest* request, ps::EvictReply* reply) override {
    return Answer(*context, &PsHandler::Evict, *request, reply);
  }
  Unary* GetShardState(Context* context, const ps::ShardStateRequest* request,
                       ps::ShardStateReply* reply) override {
    return TellState(context, *request, reply);
  }
  Unary* Restore(Context* context, const ps::RestoreRequest* request,
                 ps::RestoreReply* reply) override {
    return Obey(context, "Restore", &PsHandler::Restore, *request, reply);
  }
  Unary* MeasureNorm(Context* context, const ps::ApplyRequest* request,
                     ps::NormReply* reply) override {
    return Obey(context, "MeasureNorm", &PsHandler::MeasureNorm, *request, reply);
  }
  Unary* Apply(Context* context, const ps::ApplyRequest* request, ps::ApplyReply* reply) override {
    return Obey(context, "Apply", &PsHandler::Apply, *request, reply);
  }
  Unary* Snapshot(Context* context, const ps::SnapshotRequest* request,
                  ps::SnapshotReply* reply) override {
    return Obey(context, "Snapshot", &PsHandler::Snapshot, *request, reply);
  }
  Unary* EndTask(Context* context, const ps::EndTaskRequest* request,
                 ps::EndTaskReply* reply) override {
    return Obey(context, "EndTask", &PsHandler::EndTask, *request, reply);
  }
  grpc::ServerReadReactor<grpc::ByteBuffer>* Push(Context* context,
                                                  grpc::ByteBuffer* reply) override {
    return StartPushReactor(handler_, RuleFor(*context), &services_, context, GuardsOf(*context),
                            reply);
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(Context* context,
                                                   const grpc::ByteBuffer* request) override {
    return StartPullReactor(handler_, RuleFor(*context), &services_, context, GuardsOf(*context),
                            *request);
  }
  Unary* OpenSharedMemory(Context* context, const ps::OpenSharedMemoryRequest* request,
                          ps::OpenSharedMemoryReply* reply) override {
    using Reply = ps::OpenSharedMemoryReply;
    return Start(*context, *request, reply, [&](PsHandler::Done<Reply> done) {
      const absl::Status reachable = services_.exchanges.CheckHost(*request);
      if (!reachable.ok()) return done(reachable);
      handler_->OpenSharedMemory(
          *request, [this, request, done = std::move(done)](absl::StatusOr<Reply> admitted) {
            if (!admitted.ok()) return done(std::move(admitted));
            const absl::Status opened = services_.exchanges.Open(*request, &*admitted);
            done(opened.ok() ? std::move(admitted) : opened);
          });
    });
  }

 private:
  template <typename Request, typename Reply>
  Unary* Answer(const Context& context,
                void (PsHandler::*method)(const Request&, PsHandler::Done<Reply>),
                const Request& request, Reply* reply) {
    return Start(context, request, reply, [&](PsHandler::Done<Reply> done) {
      (handler_->*method)(request, std::move(done));
    });
  }

  // Handles an order of the coordinator to this shard. With certificates, the access table admits
  // only ps tasks, so no proof is needed.
  template <typename Request, typename Reply>
  Unary* Obey(Context* context, absl::string_view method,
              void (PsHandler::*order)(const Request&, PsHandler::Done<Reply>),
              const Request& request, Reply* reply) {
    if (certificates_) return Answer(*context, order, request, reply);
    const bool proven = IsProven(*context, method, request);
    return StartSealed(context, method, proven, request, reply, [&](PsHandler::Done<Reply> done) {
      if (proven) return (handler_->*order)(request, std::move(done));
      const absl::Status refusal = absl::PermissionDeniedError(
          absl::StrCat(method,
                       " is only for the job\'s coordinator, and the caller has not proven that "
                       "it is the coordinator: give all ps tasks the same train_dir, the same "
                       "--peer_secret_file, or TLS"));
      LOG_EVERY_T(WARNING, 10) << "refused a call: " << refusal.message();
      done(refusal);
    });
  }

  // Answers every caller. A caller that proves to be the coordinator gets a proof with the answer.
  Unary* TellState(Context* context, const ps::ShardStateRequest& request,
                   ps::ShardStateReply* reply) {
    constexpr absl::string_view kMethod = "GetShardState";
    return StartSealed(context, kMethod, IsProven(*context, kMethod, request), request, reply,
                       [&](PsHandler::Done<ps::ShardStateReply> done) {
                         handler_->GetShardState(request, std::move(done));
                       });
  }

  template <typename Request>
  bool IsProven(const Context& context, absl::string_view method, const Request& request) const {
    return secret_ != nullptr && SameProof(FindPeerProof(context.client_metadata()),
                                           secret_->ProveRequest(method, request));
  }

  // Like Start. If the request is proven, the answer carries a proof that this is a task of the
  // job.
  template <typename Request, typename Reply, typename Call>
  Unary* StartSealed(Context* context, absl::string_view method, bool proven,
                     const Request& request, Reply* reply, const Call& call) {
    typename UnaryReactor<Reply>::SealFn mac;
    if (proven) {
      mac = [this, context, proof = secret_->ProveRequest(method, request)](
                const grpc::Status& status, const Reply& sent) {
        context->AddTrailingMetadata(kPeerProofKey, secret_->ProveAnswer(proof, status, sent));
      };
    }
    return Start(*context, request, reply, call, std::move(mac));
  }

  // Runs `call` if the caller may use the request's worker_id, and answers with an error if not.
  template <typename Request, typename Reply, typename Call>
  Unary* Start(const Context& context, const Request& request, Reply* reply, const Call& call,
               typename UnaryReactor<Reply>::SealFn mac = nullptr) {
    CallGuards guards = GuardsOf(context);
    guards.account->NoteReceived(request.ByteSizeLong());
    auto* reactor = new UnaryReactor<Reply>(reply, std::move(guards), std::move(mac));
    const absl::Status allowed = RuleFor(context).Check(request);
    if (allowed.ok()) {
      call(reactor->MakeDone());
    } else {
      reactor->MakeDone()(allowed);
    }
    return reactor;
  }

  CallerRule RuleFor(const Context& context) const {
    return certificates_ ? CallerRule::OfPeer(context) : CallerRule::Anybody();
  }

  CallGuards GuardsOf(const Context& context) const {
    return {watch_, connections_->Find(context.peer())};
  }

  PsHandler* const handler_;
  const bool certificates_;
  const std::shared_ptr<const PeerSecret> secret_;
  const ConnectionTable* const connections_;
  CallWatch* const watch_;
  ChunkServices services_;
};

class GrpcPsServerImpl final : public GrpcPsServer {
 public:
  GrpcPsServerImpl(PsHandler* handler, const TransportOptions& options)
      : connections_(options.limits, PrefaceOf(options.credentials.get()), &clock_),
        watch_(options.limits, &clock_),
        service_(handler, options.credentials != nullptr && options.credentials->encrypted(),
                 options.peer_secret, &connections_, &watch_) {}
  ~GrpcPsServerImpl() override { Stop(absl::ZeroDuration()); }

  absl::Status Start(const std::string& address, const TransportOptions& options) {
    // A chunk is received by one thread and freed by another. With one malloc arena per thread, the
    // arenas together would grow to the sum of the most that each ever held.
    mallopt(M_ARENA_MAX, 1);
    InitGrpcRuntime();  // before the builder, whose constructor collects the registered plugins
    grpc::ServerBuilder builder;
    ConfigureServer(options, &builder);
    builder.RegisterService(&service_);
    const Reflection reflection = options.debug_services ? Reflection::kOn : Reflection::kOff;
    PP_ASSIGN_OR_RETURN(
        listening_, StartListening(address, options.credentials.get(), reflection, options.limits,
                                   &builder, &connections_, &watch_));
    return absl::OkStatus();
  }

  const std::string& address() const override { return listening_.address; }

  void SetServing(bool serving) override {
    listening_.server->GetHealthCheckService()->SetServingStatus(kHealthServiceName, serving);
  }

  void Stop(absl::Duration grace) override {
    if (listening_.server == nullptr) return;
    absl::MutexLock lock(&stop_mutex_);
    if (stopped_) return;
    stopped_ = true;
    listening_.gate->Stop();
    listening_.server->GetHealthCheckService()->Shutdown();
    const gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_nanos(absl::ToInt64Nanoseconds(std::min(grace, absl::Hours(24))),
                                         GPR_TIMESPAN));
    listening_.server->Shutdown(deadline);
    listening_.server->Wait();
  }

 private:
  SteadyClock clock_;
  ConnectionTable connections_;
  CallWatch watch_;
  Service service_;
  ListeningServer listening_;  // after the service it serves
  absl::Mutex stop_mutex_;
  bool stopped_ ABSL_GUARDED_BY(stop_mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcPsServer>> StartGrpcPsServer(const std::string& address,
                                                                PsHandler* handler,
                                                                const TransportOptions& options) {
  auto server = std::make_unique<GrpcPsServerImpl>(handler, options);
  PP_RETURN_IF_ERROR(server->Start(address, options));
  return server;
}

}  // namespace pushpull
