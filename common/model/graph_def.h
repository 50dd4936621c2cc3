// Writes a network as TensorFlow's GraphDef, which TensorBoard's Graphs tab draws. Pure functions.
#ifndef PUSHPULL_COMMON_MODEL_GRAPH_DEF_H_
#define PUSHPULL_COMMON_MODEL_GRAPH_DEF_H_

#include "common/model/network_spec.h"
#include "protos/graph_def.pb.h"

namespace pushpull {

// Returns a graph with a node for the image, for each variable and for each node of the network,
// in topological order. It is for people to look at: TensorFlow could not run it.
//
//   image      a Placeholder named "image"
//   variable   a VariableV2 under its name; those that two nodes share appear once
//   node       the operator that TensorFlow has for it ("Conv2D", "FusedBatchNormV3"), which reads
//              the node's inputs and then its variables. Parameters that TensorFlow would read from
//              constants, such as the axis of ConcatV2, are left out.
//   biases     a BiasAdd after the convolution
//
// A node with variables is a scope of their names, so its operator gets a name below it:
// "MobilenetV2/Conv/Conv2D". Other nodes keep their names. Every node has the attribute
// `_output_shapes`, from which TensorBoard labels the edges; the batch size is -1 there, which
// means that it is unknown.
tensorflow::GraphDef MakeGraphDef(const NetworkSpec& network);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_GRAPH_DEF_H_
