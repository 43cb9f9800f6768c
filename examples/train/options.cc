// SPDX-License-Identifier: Apache-2.0
#include "examples/train/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace train {
namespace {

constexpr std::size_t most = 100'000'000;

const std::map<std::string, NormMode> norm_names = {
    {"sync", NormMode::sync}, {"local", NormMode::local}, {"none", NormMode::none}};

const std::map<std::string, rondo::DType> type_names = {{"f32", rondo::DType::f32},
                                                        {"f64", rondo::DType::f64}};
const std::map<std::string, rondo::DType> wire_names = {{"f16", rondo::DType::f16},
                                                        {"bf16", rondo::DType::bf16}};

// CLI::CheckedTransformer cannot print the values of an enumeration.
template <class Target, class Value>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Target& target,
                        const std::map<std::string, Value>& choices, const std::string& text) {
  const auto choose = [&target, &choices](const std::string& given) { target = choices.at(given); };
  return app.add_option_function<std::string>(name, choose, text)->check(CLI::IsMember(choices));
}

// Needed because CLI::Range accepts values that are not numbers.
CLI::Validator between(double low, double high) {
  const auto check = [low, high](std::string& text) {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
    return good ? std::string() : fmt::format("Value {} not in range {} to {}", text, low, high);
  };
  return {check, fmt::format("in [{} - {}]", low, high)};
}

// Needed because the conversion to an unsigned type accepts -1.
CLI::Validator not_negative() {
  const auto check = [](std::string& text) {
    const bool good = !text.starts_with('-');
    return good ? std::string() : fmt::format("Value {} is below 0", text);
  };
  return {check, "NONNEGATIVE"};
}

std::string name_of(NormMode mode) {
  for (const auto& [name, value] : norm_names)
    if (value == mode) return name;
  return {};
}

void add_data_options(CLI::App& app, RunOptions& options) {
  app.add_option("--images", options.images, "training pictures")
      ->check(CLI::Range(std::size_t{1}, most))
      ->capture_default_str();
  app.add_option("--test-images", options.test_images, "pictures for the test after each epoch")
      ->check(CLI::Range(std::size_t{1}, most))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "how often every training picture is seen")
      ->check(CLI::Range(std::size_t{1}, most))
      ->capture_default_str();
  app.add_option("--batch", options.batch,
                 "pictures in a step, of all ranks together: a multiple of their number")
      ->check(CLI::Range(std::size_t{1}, most))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of pictures, first weights and order")
      ->check(not_negative())
      ->capture_default_str();
}

void add_learning_options(CLI::App& app, RunOptions& options) {
  app.add_option("--learning-rate", options.learning_rate,
                 "the highest: it rises to it, then falls to 0")
      ->check(between(0, 1000))
      ->capture_default_str();
  app.add_option("--warm-up", options.warm_up, "epochs in which the learning rate rises")
      ->check(between(0, 1e6))
      ->capture_default_str();
  app.add_option("--momentum", options.momentum)->check(between(0, 0.9999))->capture_default_str();
  app.add_option("--clip", options.clip, "the most that the norm of all gradients may be; 0: any")
      ->check(between(0, 1e30))
      ->capture_default_str();
  add_choice(app, "--batch-norm", options.norms, norm_names,
             "statistics over all ranks, over each rank alone, or no batch norm")
      ->default_str("sync");
}

void add_number_options(CLI::App& app, RunOptions& options) {
  add_choice(app, "--dtype", options.type, type_names, "of all numbers")->default_str("f32");
  add_choice(app, "--wire", options.wire, wire_names,
             "of gradients as they travel (with --dtype f32)");
  app.add_option("--bucket-bytes", options.bucket_bytes, "gradients that travel together")
      ->check(CLI::Range(std::size_t{64}, most))
      ->capture_default_str();
  app.add_flag("--reproducible", options.reproducible,
               "the same bits over every transport, algorithm and bucket size");
}

void add_file_options(CLI::App& app, RunOptions& options) {
  app.add_option("--csv", options.csv, "write the loss of every step to this file");
  app.add_option("--checkpoint", options.checkpoint, "keep a checkpoint in this file");
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "steps between checkpoints; 0: each epoch")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--resume", options.resume, "go on from this checkpoint, which rank 0 reads");
  app.add_option("--stop-after", options.stop_after,
                 "end after this many steps, with a checkpoint; 0: do all")
      ->check(not_negative())
      ->capture_default_str();
}

}  // namespace

TrainerOptions RunOptions::trainer() const {
  TrainerOptions result;
  result.network.norms = norms;
  result.network.seed = seed;
  result.momentum = momentum;
  result.clip = clip;
  result.bucket_bytes = bucket_bytes;
  result.wire = wire;
  return result;
}

Schedule RunOptions::schedule() const {
  const double warm_steps = warm_up * static_cast<double>(steps_of_epoch());
  return {learning_rate,
          static_cast<std::size_t>(std::min(warm_steps, static_cast<double>(steps()))), steps()};
}

Identity RunOptions::identity() const {
  return {{"--dtype", std::string(rondo::name_of(type))},
          {"--batch-norm", name_of(norms)},
          {"--images", std::to_string(images)},
          {"--seed", std::to_string(seed)}};
}

void add_options(CLI::App& app, RunOptions& options) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_data_options(app, options);
  add_learning_options(app, options);
  add_number_options(app, options);
  add_file_options(app, options);
}

void check_options(const RunOptions& options, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  if (options.batch % size != 0) {
    const std::size_t below = options.batch / size * size;
    const std::string choices =
        below == 0 ? fmt::format("{}", size) : fmt::format("{} or {}", below, below + size);
    throw CLI::ValidationError("--batch",
                               fmt::format("{} pictures cannot be dealt evenly to {} ranks; {} can",
                                           options.batch, ranks, choices));
  }
  if (options.wire && options.type != rondo::DType::f32)
    throw CLI::ValidationError("--wire", "goes with --dtype f32 only");
  if (options.checkpoint_every > 0 && options.checkpoint.empty())
    throw CLI::ValidationError("--checkpoint-every", "needs --checkpoint FILE");
}

}  // namespace train
