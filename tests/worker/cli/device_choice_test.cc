#include "worker/cli/device_choice.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/cli/exit_codes.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A device that only records how it was opened and whether it failed.
class NamedDevice final : public Device {
 public:
  explicit NamedDevice(absl::Status status = absl::OkStatus(), bool uses_libraries = false)
      : status_(std::move(status)), uses_libraries_(uses_libraries) {}
  std::string description() const override { return "named"; }
  std::string model() const override { return "model of GPU"; }
  std::string uuid() const override { return "GPU-named"; }
  bool uses_libraries() const override { return uses_libraries_; }
  int64_t free_bytes() const override { return 0; }
  int64_t free_bytes_without_others() const override { return 0; }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t) override { return status_; }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t) override { return status_; }
  void Write(void*, const void*, int64_t) override {}
  Operators<float>* float_operators() override { return nullptr; }
  Operators<Bfloat16>* bfloat16_operators() override { return nullptr; }
  void CopyToDevice(void*, const void*, int64_t) override {}
  void Upload(void*, const void*, int64_t, DeviceEvent*) override {}
  void CopyToHost(void*, const void*, int64_t, DeviceEvent*) override {}
  std::unique_ptr<DeviceEvent> MakeEvent() override { return nullptr; }
  void RecordCompute(DeviceEvent*) override {}
  void RecordCopy(DeviceEvent*) override {}
  void RecordUpload(DeviceEvent*) override {}
  void ComputeAfter(DeviceEvent*) override {}
  absl::Status Wait(DeviceEvent*) override { return status_; }
  absl::StatusOr<double> MillisecondsBetween(DeviceEvent*, DeviceEvent*) override { return 0.0; }
  std::unique_ptr<DeviceGraph> Record(absl::FunctionRef<void()>) override { return nullptr; }
  void Launch(DeviceGraph*) override {}
  absl::Status status() const override { return status_; }

 private:
  const absl::Status status_;
  const bool uses_libraries_;
};

class DeviceChoiceTest : public ::testing::Test {
 protected:
  absl::StatusOr<ChosenDevice> Open(const DeviceFlags& flags, int index = 0) {
    const auto count = [this] { return count_; };
    const auto open = [this](const GpuOptions& options) -> absl::StatusOr<std::unique_ptr<Device>> {
      opened_.push_back(options.gpu);
      limit_ = options.memory_limit_bytes;
      library_ = options.library;
      choices_file_ = options.library_choices_file;
      if (!open_error_.ok()) return open_error_;
      return std::make_unique<NamedDevice>(absl::OkStatus(),
                                           finds_libraries_ && library_ != GpuLibrary::kOwn);
    };
    return OpenChosenDevice(flags, index, {count, open});
  }
  void ExpectError(const DeviceFlags& flags, int code, const std::string& text, int index = 0) {
    const absl::Status status = Open(flags, index).status();
    EXPECT_EQ(ExitCodeOf(status), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  absl::StatusOr<int> count_ = 2;
  absl::Status open_error_;
  std::vector<std::string> opened_;
  int64_t limit_ = -1;
  GpuLibrary library_ = GpuLibrary::kOwn;
  bool finds_libraries_ = true;
  std::string choices_file_;
};

DeviceFlags Flags(const std::string& device, std::vector<std::string> gpus = {},
                  const std::string& precision = "") {
  DeviceFlags flags;
  flags.device = device;
  flags.gpus = std::move(gpus);
  flags.precision = precision;
  flags.default_precision = Precision::kBfloat16;
  return flags;
}

TEST_F(DeviceChoiceTest, TheFlagNamesTheGpuOfEachProcess) {
  const DeviceFlags flags = Flags("", {"1", "GPU-5a", "1"});
  for (int index = 0; index < 3; ++index) {
    const auto chosen = Open(flags, index);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_NE(chosen->device, nullptr);
    EXPECT_EQ(chosen->precision, Precision::kBfloat16);
    EXPECT_EQ(chosen->warning, "");
  }
  EXPECT_THAT(opened_, ElementsAre("1", "GPU-5a", "1"));
  ExpectError(flags, kExitUsage, "--gpus=1,GPU-5a,1 names no GPU for process 3", 3);
}

TEST_F(DeviceChoiceTest, WithoutTheFlagProcessesTakeTheGpusInTurn) {
  for (const char* device : {"", "cuda"}) {
    for (int index = 0; index < 3; ++index) ASSERT_TRUE(Open(Flags(device), index).ok());
  }
  EXPECT_THAT(opened_, ElementsAre("0", "1", "0", "0", "1", "0"));
}

TEST_F(DeviceChoiceTest, ACloneStaysOnTheGpuOfItsEarlierProcess) {
  DeviceFlags flags = Flags("");
  flags.earlier_device = "GPU-5a";
  count_ = 1;  // the others have failed, so that clone 3 would take that of clone 0
  ASSERT_TRUE(Open(flags, 3).ok());
  flags.gpus = {"0", "1"};
  ASSERT_TRUE(Open(flags, 1).ok());
  EXPECT_THAT(opened_, ElementsAre("GPU-5a", "GPU-5a"));
}

TEST_F(DeviceChoiceTest, ACloneWhoseGpuIsGoneDoesNotGoOnOnTheCpu) {
  DeviceFlags flags = Flags("");
  flags.earlier_device = "GPU-5a";
  for (const absl::StatusOr<int>& count : std::vector<absl::StatusOr<int>>{
           0, absl::UnknownError("CUDA does not start"), absl::FailedPreconditionError("old")}) {
    count_ = count;
    for (const absl::Status& error :
         {absl::NotFoundError("there is no GPU"), absl::FailedPreconditionError("no CUDA"),
          absl::AbortedError("does not answer"), absl::ResourceExhaustedError("full")}) {
      open_error_ = error;
      for (const char* device : {"", "cuda"}) {
        flags.device = device;
        ExpectError(flags, kExitGpuLost,
                    absl::StrCat("this clone has computed on GPU-5a, which cannot be used now: ",
                                 error.message()));
      }
    }
  }
}

TEST_F(DeviceChoiceTest, ACloneStaysOnTheCpuWithoutAnotherWarning) {
  DeviceFlags flags = Flags("");
  flags.earlier_device = kEarlierCpu;
  const auto chosen = Open(flags);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->device, nullptr);
  EXPECT_EQ(chosen->precision, Precision::kFloat);
  EXPECT_EQ(chosen->warning, "");
  EXPECT_TRUE(opened_.empty());
}

TEST_F(DeviceChoiceTest, PassesPrecisionAndMemoryLimitOn) {
  DeviceFlags flags = Flags("cuda", {}, "fp32");
  flags.gpu_memory_limit_mb = 4096;
  const auto chosen = Open(flags);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->precision, Precision::kFloat);
  EXPECT_EQ(limit_, int64_t{4} << 30);
  flags.default_precision = Precision::kFloat;
  flags.precision = "bf16";
  EXPECT_EQ(Open(flags)->precision, Precision::kBfloat16);
}

TEST_F(DeviceChoiceTest, PassesTheLibraryOn) {
  DeviceFlags flags = Flags("cuda");
  ASSERT_TRUE(Open(flags).ok());
  EXPECT_EQ(library_, GpuLibrary::kOwn);
  flags.gpu_library = "auto";
  flags.library_choices_file = "/cache/choices";
  ASSERT_TRUE(Open(flags).ok());
  EXPECT_EQ(library_, GpuLibrary::kAuto);
  EXPECT_EQ(choices_file_, "/cache/choices");
}

TEST_F(DeviceChoiceTest, SetsTheInstructionSet) {
  DeviceFlags flags = Flags("cpu");
  flags.cpu_isa = "avx2";
  ASSERT_TRUE(Open(flags).ok());
  EXPECT_EQ(ChosenCpuIsa(), CpuIsa::kAvx2);
  flags.cpu_isa = "sse4";
  EXPECT_EQ(DescribeDevice(*Open(flags)), "the CPU (sse4) in fp32");
  flags.cpu_isa = "auto";
  ASSERT_TRUE(Open(flags).ok());
  EXPECT_EQ(ChosenCpuIsa(), AvailableCpuIsas().back());
  flags.cpu_isa = "mmx";
  ExpectError(flags, kExitUsage,
              "--cpu_isa=mmx: expected auto, sse4, avx2, avx512, avx512_bf16, amx_bf16");
}

TEST_F(DeviceChoiceTest, TellsTheServerWhetherTheBitsAreThoseOfOthers) {
  DeviceFlags flags = Flags("cpu");
  flags.cpu_isa = "avx2";
  const ps::Arithmetic avx2 = ArithmeticOf(*Open(flags), "host");
  EXPECT_EQ(avx2.device(), "the CPU (avx2) in fp32");
  flags.cpu_isa = "sse4";
  const ps::Arithmetic sse4 = ArithmeticOf(*Open(flags), "host");
  EXPECT_NE(sse4.rounding(), avx2.rounding());
  flags.cpu_isa = "auto";
  EXPECT_EQ(ArithmeticOf(*Open(flags), "host").rounding(), avx2.rounding());
  flags.precision = "bf16";
  const ps::Arithmetic best_bf16 = ArithmeticOf(*Open(flags), "host");
  EXPECT_NE(best_bf16.rounding(), avx2.rounding());
  flags.cpu_isa = "avx2";
  EXPECT_EQ(ArithmeticOf(*Open(flags), "host").rounding() == best_bf16.rounding(),
            !MultipliesInTiles(AvailableCpuIsas().back()));

  // GPUs of one model compute the same, whatever their numbers.
  const ps::Arithmetic gpu = ArithmeticOf(*Open(Flags("cuda", {"0", "1"}), 1), "host");
  EXPECT_EQ(gpu.device(), "model of GPU in bf16");
  EXPECT_EQ(gpu.rounding(), gpu.device());
}

TEST_F(DeviceChoiceTest, TellsTheServerOfLibrariesBecauseMachinesMayChooseDifferently) {
  DeviceFlags flags = Flags("cuda");
  flags.gpu_library = "own";
  EXPECT_EQ(ArithmeticOf(*Open(flags), "a").rounding(), "model of GPU in bf16");
  for (const char* library : {"auto", "vendor"}) {
    flags.gpu_library = library;
    const ps::Arithmetic first = ArithmeticOf(*Open(flags, 0), "a");
    EXPECT_EQ(first.device(), "model of GPU in bf16, libraries of a");
    EXPECT_EQ(first.rounding(), first.device());
    EXPECT_EQ(ArithmeticOf(*Open(flags, 1), "a").rounding(), first.rounding());
    EXPECT_NE(ArithmeticOf(*Open(flags, 0), "b").rounding(), first.rounding());
  }
  finds_libraries_ = false;
  flags.gpu_library = "auto";
  EXPECT_EQ(ArithmeticOf(*Open(flags), "a").rounding(), "model of GPU in bf16");
}

TEST_F(DeviceChoiceTest, UsesTheCpuWithoutAGpuAndWarns) {
  count_ = 0;
  const auto none = Open(Flags(""));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->device, nullptr);
  EXPECT_EQ(none->precision, Precision::kFloat);
  EXPECT_EQ(none->warning,
            "there is no GPU: computing on the CPU; --device=cpu says that this is meant");
  count_ = absl::UnimplementedError("built without CUDA");
  EXPECT_THAT(Open(Flags(""))->warning, StartsWith("built without CUDA: computing on the CPU"));
  count_ = absl::FailedPreconditionError("the driver is too old");
  EXPECT_THAT(Open(Flags(""))->warning, StartsWith("the driver is too old: computing on the CPU"));
  const auto wanted = Open(Flags("cpu"));
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(wanted->device, nullptr);
  EXPECT_EQ(wanted->warning, "");
  EXPECT_TRUE(opened_.empty());
}

TEST_F(DeviceChoiceTest, WaitsForGpusThatAreNotReadyYetInsteadOfUsingTheCpu) {
  count_ = open_error_ = absl::AbortedError("CUDA is not ready yet");
  ExpectError(Flags(""), kExitGpuLost, "CUDA is not ready yet");
  EXPECT_EQ(Open(Flags("")).status().message(), "CUDA is not ready yet");
  ExpectError(Flags("cuda"), kExitGpuLost, "--device=cuda: CUDA is not ready yet");
  ExpectError(Flags("", {"0"}), kExitGpuLost, "--gpus=0: CUDA is not ready yet");
  EXPECT_TRUE(Open(Flags("cpu")).ok());
}

TEST_F(DeviceChoiceTest, TheCpuComputesInBf16IfAsked) {
  DeviceFlags flags = Flags("cpu", {}, "bf16");
  flags.cpu_isa = "avx2";
  const auto bf16 = Open(flags);
  ASSERT_TRUE(bf16.ok()) << bf16.status();
  EXPECT_EQ(bf16->precision, Precision::kBfloat16);
  EXPECT_EQ(bf16->warning, "");
  EXPECT_EQ(DescribeDevice(*bf16), "the CPU (avx2) in bf16");
  count_ = 0;
  flags.device = "";
  EXPECT_THAT(Open(flags)->warning, StartsWith("there is no GPU: computing on the CPU;"));
  flags.cpu_isa = "auto";
  flags.precision = "";
  EXPECT_EQ(Open(flags)->precision, Precision::kFloat);
  flags.precision = "bf16";
  EXPECT_EQ(DescribeDevice(*Open(flags)),
            absl::StrCat("the CPU (", CpuIsaName(AvailableCpuIsas().back()), ") in bf16"));
}

TEST_F(DeviceChoiceTest, ARequestedGpuThatIsMissingIsAnError) {
  count_ = 0;
  ExpectError(Flags("cuda"), kExitGpuLost, "--device=cuda: there is no GPU at the moment");
  count_ = absl::UnimplementedError("built without CUDA");
  ExpectError(Flags("cuda"), kExitUsage, "--device=cuda: built without CUDA");
  count_ = absl::FailedPreconditionError("the driver is too old");
  ExpectError(Flags("cuda"), kExitInternal, "--device=cuda: the driver is too old");
  open_error_ = absl::NotFoundError("no GPU 7");
  ExpectError(Flags("", {"7"}), kExitUsage, "--gpus=7: no GPU 7");
  open_error_ = absl::AbortedError("GPU 7 does not answer");
  ExpectError(Flags("", {"7"}), kExitGpuLost, "--gpus=7: GPU 7 does not answer");
  // No batch is too large here: what opening needs, every GPU has, unless others hold its memory.
  open_error_ = absl::ResourceExhaustedError("GPU 7 is full");
  ExpectError(Flags("", {"7"}), kExitGpuLost, "--gpus=7: GPU 7 is full");
}

TEST_F(DeviceChoiceTest, RefusesInvalidFlags) {
  ExpectError(Flags("gpu"), kExitUsage, "--device=gpu, expected cuda or cpu");
  ExpectError(Flags("cpu", {"0", "1"}), kExitUsage, "--device=cpu and --gpus=0,1 contradict");
  ExpectError(Flags("", {"0", ""}), kExitUsage, "empty entry");
  ExpectError(Flags("", {}, "fp16"), kExitUsage, "--precision=fp16, expected fp32 or bf16");
  DeviceFlags negative = Flags("cuda");
  negative.gpu_memory_limit_mb = -1;
  ExpectError(negative, kExitUsage, "--gpu_memory_limit_mb=-1");
  DeviceFlags library = Flags("cuda");
  library.gpu_library = "cudnn";
  ExpectError(library, kExitUsage, "--gpu_library=cudnn, expected auto, own or vendor");
  EXPECT_TRUE(opened_.empty());
}

TEST_F(DeviceChoiceTest, RefusesFlagsOfGpusOnTheCpu) {
  DeviceFlags limit = Flags("cpu"), library = Flags("cpu"), shown = Flags("cpu");
  limit.gpu_memory_limit_mb = 4096;
  ExpectError(limit, kExitUsage, "--device=cpu and --gpu_memory_limit_mb=4096 contradict");
  for (const char* name : {"auto", "vendor"}) {
    library.gpu_library = name;
    ExpectError(library, kExitUsage,
                absl::StrCat("--device=cpu and --gpu_library=", name, " contradict"));
  }
  shown.show_gpus = true;
  ExpectError(shown, kExitUsage, "--device=cpu and --show_gpus contradict");
  // A computer without a GPU may have the same command line as one with GPUs.
  count_ = 0;
  for (DeviceFlags* flags : {&limit, &library, &shown}) {
    flags->device = "";
    EXPECT_TRUE(Open(*flags).ok());
  }
}

TEST_F(DeviceChoiceTest, AFailedDeviceGivesItsExitCode) {
  const NamedDevice whole, lost(absl::AbortedError("GPU 0 fell off the bus"));
  const absl::Status error = absl::AbortedError("GPU 0 fell off the bus");
  EXPECT_EQ(ExitCodeOf(WithDeviceExitCode(error, &lost)), kExitGpuLost);
  EXPECT_EQ(ExitCodeOf(WithDeviceExitCode(error, &whole)), kExitPeerLost);
  EXPECT_EQ(ExitCodeOf(WithDeviceExitCode(error, nullptr)), kExitPeerLost);
  EXPECT_EQ(ExitCodeOf(WithDeviceExitCode(absl::OkStatus(), &lost)), kExitDone);
}

}  // namespace
}  // namespace pushpull
