/* The jobs of killline sim-device that go through a control file (sim/xrt/fault_control.h) to devices that
 * run. */
#ifndef SIM_DEVICE_FAULT_H
#define SIM_DEVICE_FAULT_H

/* argv[0]: for messages; then the options. Exit status, as the commands of host/cmd.h; -1: --help is wanted.
 */
int sim_device_fault(int argc, char **argv);
int sim_device_status(int argc, char **argv);

#endif
