# The same recipe for vitis_hls of 2022.1 to 2023.1, which takes no config file; not run.
#   vitis_hls -f hls/vitis/run.tcl -tclargs csim|csynth|cosim|export CONFIG DIRECTORY
# CONFIG: the hls_BUILD_CARD.cfg that CMake wrote; its settings are read from there, none is repeated here.
lassign $argv step config directory

set setting [dict create syn.file {} tb.file {}]
set file [open $config]
while {[gets $file line] >= 0} {
    if {[regexp {^([a-z_.]+)=(.*)$} $line all key value]} {
        if {$key in {syn.file tb.file}} {
            dict lappend setting $key $value
        } else {
            dict set setting $key $value
        }
    }
}
close $file

open_project -reset $directory
set_top [dict get $setting syn.top]
foreach source [dict get $setting syn.file] {
    add_files $source -cflags [dict get $setting syn.cflags] -csimflags [dict get $setting syn.csimflags]
}
foreach source [dict get $setting tb.file] {
    add_files -tb $source -cflags [dict get $setting tb.cflags]
}
open_solution -reset -flow_target [dict get $setting flow_target] solution
set_part [dict get $setting part]
create_clock -period [dict get $setting clock]
set_clock_uncertainty [dict get $setting clock_uncertainty]
switch $step {
    csim { csim_design }
    csynth { csynth_design }
    cosim {
        csynth_design
        cosim_design -rtl verilog
    }
    export {
        csynth_design
        export_design -format [dict get $setting package.output.format] -output [dict get $setting package.output.file]
    }
    default { error "step $step: csim, csynth, cosim or export" }
}
exit
