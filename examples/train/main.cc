// SPDX-License-Identifier: Apache-2.0
//
// Trains a small convolutional network on pictures of digits, on as many ranks as the launcher
// starts: docs/training.md.
#include <rondo/communicator.h>
#include <rondo/error.h>
#include <rondo/info.h>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "examples/train/options.h"
#include "examples/train/run.h"

namespace {

constexpr int exit_failed = 1, exit_usage = 2;

// A mistake in the command line is the same on every rank, so only rank 0 prints it.
int explain(const CLI::App& app, const CLI::ParseError& error) {
  const bool fine = error.get_exit_code() == 0;  // --help
  // The rank is 0 when the environment is invalid, so that the mistake is printed there too.
  const int rank = rondo::gather_place({}).rank;
  if (rank == 0 && fine) app.exit(error);
  if (rank == 0 && !fine)
    fmt::print(stderr, "train: {}\ntrain --help describes the options\n", error.what());
  return fine ? 0 : exit_usage;
}

void train_on(const train::RunOptions& options) {
  rondo::Options how;
  if (options.reproducible) how.reproducible = true;
  auto communicator = rondo::Communicator::connect(how);
  if (options.type == rondo::DType::f64)
    train::run<double>(communicator, options);
  else
    train::run<float>(communicator, options);
}

int run(int argc, char** argv) {
  CLI::App app{
      "Trains a convolutional network with batch norm on drawn digits, data-parallel over Rondo."};
  app.name("train");
  train::RunOptions options;
  train::add_options(app, options);
  rondo::PlaceInfo place;
  try {
    app.parse(argc, argv);
    place = rondo::gather_place({});
    train::check_options(options, place.size);
  } catch (const CLI::ParseError& error) {
    return explain(app, error);
  }
  train_on(options);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("standard output cannot be written");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const train::ToldElsewhere&) {
    return exit_failed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "train: {}\n", error.what());
    return exit_failed;
  }
}
