// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "tools/bench/early_end.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"
#include "tools/measure/gpu.h"
#include "tools/records/record_file.h"
#include "tools/records/write.h"

namespace rondo::tools {

// One rank of a run that measures: its communicator, what is the same for the whole run, and how
// results leave rank 0. All ranks make the same calls in the same order. When rank 0 cannot write
// results, all ranks stop together. Thread-bound.
class Session {
 public:
  // Opens files and GPU. Throws UsageError on all ranks when one of them cannot. What it
  // is given outlives the object.
  Session(const BenchOptions& options, Communicator& communicator, EarlyEnd& early_end);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Communicator& communicator() noexcept { return communicator_; }
  const Setting& setting() const noexcept { return setting_; }
  const BenchOptions& options() const noexcept { return options_; }
  GpuStream* stream() noexcept { return gpu_ ? gpu_->stream.get() : nullptr; }
  const BenchGpu* gpu() const noexcept { return gpu_ ? &*gpu_ : nullptr; }
  Stop& stop() noexcept { return early_end_.stop(); }
  Progress& progress() noexcept { return progress_; }
  EarlyEnd& early_end() noexcept { return early_end_; }
  bool is_first() const { return communicator_.rank() == 0; }
  Form form() const noexcept { return options_.wide ? Form::wide : Form::narrow; }
  bool shows_table() const { return options_.shows_table(); }
  // The files of results; only on rank 0.
  RecordFile& record() { return *record_; }

  // Prints the lines above the table: versions, hosts, what rank 0 runs on.
  void describe(std::string_view title);
  // Calls a function that prints or writes, on rank 0 only. After the first that fails it calls
  // none.
  template <class Function>
  void deliver(Function function) {
    if (!is_first() || lost_) return;
    try {
      function();
    } catch (const std::exception&) {
      lost_ = std::current_exception();
    }
  }
  // Whether to go on: rank 0 could write all results so far, and no rank was asked to stop. All
  // ranks get the same answer.
  bool goes_on();
  // Whether goes_on() has found that a rank was asked to stop.
  bool ended_early() const noexcept { return ended_by_ != 0; }
  // Ends the files of rank 0 with a reason, if they have begun.
  void fail(std::string_view why) noexcept {
    if (record_) record_->fail(why);
  }
  // Call it last. Where the run ended early it marks the files of rank 0 as incomplete and says why
  // on its standard error. Throws why rank 0 could not write, if so. Returns the exit status:
  // `status` of a whole run, else 128 + the signal on all ranks (SIGPIPE: nobody reads).
  int end(int status);

 private:
  void open_files();
  void open_gpu();
  void find_transports(const SystemInfo& info);
  void find_binding();
  std::string describe_early_end();
  void print_gpu() const;
  void print_peers();

  const BenchOptions& options_;
  Communicator& communicator_;
  EarlyEnd& early_end_;
  std::optional<BenchGpu> gpu_;  // no value: the buffers are in host memory
  Setting setting_;
  Progress progress_;
  std::optional<RecordFile> record_;  // of rank 0
  int ended_by_ = 0;                  // the signal by which a rank was asked to stop; 0: none
  std::exception_ptr lost_;           // why rank 0 can deliver no more
};

}  // namespace rondo::tools
