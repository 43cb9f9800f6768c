// SPDX-License-Identifier: Apache-2.0
#include "examples/train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

#include "examples/train/console.h"
#include "examples/train/curve.h"
#include "examples/train/replaceable.h"

namespace train {
namespace {

using Clock = std::chrono::steady_clock;

// Runs the action on rank 0 only. When it fails, every rank throws: rank 0 the cause, the others
// ToldElsewhere. Collective.
void on_rank_0(rondo::Communicator& communicator, const std::function<void()>& action) {
  std::exception_ptr problem;
  std::int32_t failed = 0;
  if (communicator.rank() == 0) try {
      action();
    } catch (...) {
      problem = std::current_exception();
      failed = 1;
    }
  const rondo::Buffer buffer = rondo::buffer_of(std::span(&failed, 1));
  communicator.broadcast(buffer, buffer, 0).wait();
  if (problem) std::rethrow_exception(problem);
  if (failed != 0) throw ToldElsewhere();
}

// The speed of training, without tests and checkpoints.
struct Pace {
  std::size_t samples = 0;  // of all ranks
  double seconds = 0;

  void add(std::size_t more, double took) {
    samples += more;
    seconds += took;
  }
  double per_second() const { return seconds > 0 ? static_cast<double>(samples) / seconds : 0; }
};

template <class T>
class Run {
 public:
  Run(rondo::Communicator& communicator, const RunOptions& options)
      : communicator_(communicator),
        options_(options),
        console_(communicator.rank() == 0),
        training_(Digits::Set::training, options.images, options.seed),
        test_(Digits::Set::test, options.test_images, options.seed),
        trainer_(communicator, options.trainer()),
        sampler_(options.images, communicator,
                 {.seed = options.seed, .remainder = rondo::Remainder::uneven}) {}

  void operator()();

 private:
  void introduce();
  void resume();
  void open_files();
  void epoch();
  void step();
  void end_epoch();
  void save();
  void conclude();
  bool ended() const {
    return progress_.epoch >= options_.epochs ||
           (options_.stop_after != 0 && progress_.step >= options_.stop_after);
  }
  // The index of the next step, counted with the present batch size. progress_.step may differ: it
  // counts steps done, also with another batch size before a resume.
  std::size_t position() const {
    return progress_.epoch * options_.steps_of_epoch() + progress_.taken / options_.batch;
  }

  rondo::Communicator& communicator_;
  const RunOptions& options_;
  Console console_;
  Digits training_, test_;
  Trainer<T> trainer_;
  rondo::ShardedSampler sampler_;
  Progress progress_;
  Curve curve_;
  CurveRow row_;  // of the last step
  Batch<T> batch_;
  std::optional<Result> tested_;
  std::uint64_t saved_ = 0;  // the step of the last checkpoint
  Pace epoch_pace_, pace_;   // of this epoch, and of all steps of this process
};

template <class T>
void Run<T>::operator()() {
  introduce();
  if (!options_.resume.empty()) resume();
  on_rank_0(communicator_, [&] { open_files(); });
  if (ended()) console_.line("nothing is left to do: --epochs or --stop-after asks for more");
  while (!ended()) epoch();
  if (saved_ != progress_.step) save();
  conclude();
}

template <class T>
void Run<T>::introduce() {
  std::size_t numbers = 0;
  for (const rondo::Parameter& parameter : trainer_.network().parameters())
    numbers += element_count(parameter);
  const auto size = static_cast<std::size_t>(communicator_.size());
  console_.line(fmt::format(
      "{} {}, {} training and {} test pictures, {} parameters in {}, batch {} ({} on each rank)",
      size, size == 1 ? "rank" : "ranks", options_.images, options_.test_images, numbers,
      rondo::name_of(options_.type), options_.batch, options_.batch / size));
}

template <class T>
void Run<T>::resume() {
  const auto state = trainer_.state();
  on_rank_0(communicator_,
            [&] { progress_ = read_checkpoint(options_.resume, options_.identity(), state); });
  rondo::broadcast_parameters(communicator_, state);
  const rondo::Buffer bytes{&progress_, sizeof progress_, rondo::DType::u8};
  communicator_.broadcast(bytes, bytes, 0).wait();
  sampler_.resume({progress_.epoch, progress_.taken});
  trainer_.network().set_norm_batches(
      {progress_.norm_batches.begin(), progress_.norm_batches.end()});
  saved_ = progress_.step;
  console_.line(fmt::format("going on after step {} of '{}'", progress_.step, options_.resume));
}

// A file that cannot be written must be reported before hours of training.
template <class T>
void Run<T>::open_files() {
  if (!options_.checkpoint.empty()) check_replaceable(options_.checkpoint, checkpoint_suffix);
  if (!options_.csv.empty()) curve_ = Curve(options_.csv, progress_.step);
}

template <class T>
void Run<T>::epoch() {
  epoch_pace_ = {};
  while (progress_.taken < options_.images && !ended()) {
    step();
    if (progress_.taken < options_.images) curve_.add(row_);
    const bool due =
        options_.checkpoint_every > 0 && progress_.step % options_.checkpoint_every == 0;
    if (due && progress_.taken < options_.images) save();
  }
  if (progress_.taken == options_.images) end_epoch();
  on_rank_0(communicator_, [&] { curve_.flush(); });
}

template <class T>
void Run<T>::step() {
  const auto begin = Clock::now();
  const std::size_t together = std::min(options_.batch, options_.images - progress_.taken);
  batch_.clear();
  // At the end of an epoch some ranks may get fewer samples than others, or none.
  for (const rondo::Sample& sample :
       sampler_.next(options_.batch / static_cast<std::size_t>(communicator_.size())))
    batch_.add(training_, sample.index);
  const std::size_t position = this->position();
  const double rate = options_.schedule().rate(position);
  const Result result = trainer_.step(batch_, together, rate);
  progress_.step += 1;
  progress_.taken += together;
  const double sums[] = {result.loss.sum, result.loss.weight, result.right.sum,
                         result.right.weight};
  for (std::size_t i = 0; i < 4; ++i) progress_.epoch_sums[i] += sums[i];
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  for (Pace* pace : {&epoch_pace_, &pace_}) pace->add(together, took);
  row_ = {progress_.step, progress_.epoch + 1, rate, result, {}, 0};
  console_.progress(position + 1, options_.steps(), progress_.epoch + 1, result.loss.mean());
}

template <class T>
void Run<T>::end_epoch() {
  tested_ = trainer_.evaluate(test_);
  row_.test = tested_;
  row_.samples_per_second = epoch_pace_.per_second();
  curve_.add(row_);
  const auto& sums = progress_.epoch_sums;
  console_.line(fmt::format(
      "epoch {:2}: training loss {:.4f}, accuracy {:6.2f} %; test loss {:.4f}, accuracy {:6.2f} "
      "%; {:.0f} samples/s",
      progress_.epoch + 1, sums[0] / sums[1], 100 * sums[2] / sums[3], tested_->loss.mean(),
      100 * tested_->right.mean(), epoch_pace_.per_second()));
  progress_.epoch += 1;
  progress_.taken = 0;
  progress_.epoch_sums = {};
  sampler_.set_epoch(progress_.epoch);
  if (options_.checkpoint_every == 0) save();
}

template <class T>
void Run<T>::save() {
  saved_ = progress_.step;
  if (options_.checkpoint.empty()) return;
  const auto batches = trainer_.network().norm_batches();
  std::copy_n(batches.begin(), std::min(batches.size(), progress_.norm_batches.size()),
              progress_.norm_batches.begin());
  on_rank_0(communicator_, [&] {
    write_checkpoint(options_.checkpoint, options_.identity(), progress_, trainer_.state());
  });
}

template <class T>
void Run<T>::conclude() {
  if (tested_)
    console_.line(fmt::format("test accuracy {:.2f} %, {:.0f} samples/s",
                              100 * tested_->right.mean(), pace_.per_second()));
  const Overlap& overlap = trainer_.overlap();
  if (communicator_.size() > 1 && overlap.step_us > 0)
    console_.line(
        fmt::format("steps took {:.2f} s, {:.1f} % of it in finish(), waiting for gradients",
                    overlap.step_us / 1e6, 100 * overlap.exposed_us / overlap.step_us));
  if (!options_.csv.empty()) console_.line(fmt::format("loss of every step: {}", options_.csv));
  if (!options_.checkpoint.empty())
    console_.line(fmt::format("checkpoint: {}", options_.checkpoint));
}

}  // namespace

template <class T>
void run(rondo::Communicator& communicator, const RunOptions& options) {
  Run<T>(communicator, options)();
}

template void run<float>(rondo::Communicator&, const RunOptions&);
template void run<double>(rondo::Communicator&, const RunOptions&);

}  // namespace train
